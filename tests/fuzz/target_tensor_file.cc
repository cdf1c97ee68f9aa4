// A safetensors file: opened, and what it says read.
#include "fuzz.h"
#include "model/tensor_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    static const fuzz::Folder folder;
    const std::string path = folder.write("model.safetensors", fuzz::text_of(data, size));
    auto file = model::TensorFile::open(path, true);
    if (!file) {
        fuzz::require(file.message().starts_with(path), "an error names the file");
        return 0;
    }
    unsigned sum = 0;
    for (const model::TensorInfo& tensor : (*file)->tensors()) {
        fuzz::require(tensor.begin <= tensor.end && tensor.end <= size,
                      "a tensor lies in its file");
        const std::byte* const bytes = (*file)->mapping();
        (*file)->will_need(tensor.begin, tensor.end);
        for (uint64_t i = tensor.begin; i < tensor.end; ++i) sum += static_cast<unsigned>(bytes[i]);
        std::string copy(tensor.end - tensor.begin, '\0');
        fuzz::require((*file)->read(tensor.begin, tensor.end, copy.data()).ok(),
                      "a tensor can be read");
    }
    return sum == 1 ? 1 : 0;
}
