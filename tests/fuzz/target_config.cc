// config.toml, and behind kNextPart settings.json: read, checked and planned for the demo model.
#include "config/load.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    static const fuzz::Folder folder;
    std::string_view rest = fuzz::text_of(data, size);
    CommandLine line;
    line.ae_config_path = folder.write("config.toml", fuzz::take_part(rest));
    line.config_path = folder.write("settings.json", rest);
    line.overrides = {{"model-path", AERIE_SOURCE_DIR "/models/demo"}};
    line.device = DeviceChoice::kCpu;
    const Machine machine{.num_gpus = 0, .memory_free = int64_t{8} << 30, .gpu_memory = 0};
    const LoadedConfig loaded = load_config(line, machine);
    for (const std::string& error : loaded.diagnostics.errors)
        fuzz::require(!error.empty(), "an error says what is wrong");
    return 0;
}
