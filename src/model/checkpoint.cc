#include <sys/stat.h>

#include <optional>
#include <set>
#include <unordered_map>

#include "base/json.h"
#include "base/log.h"
#include "model/tensor_file.h"
#include "model/tensor_source.h"

namespace aerie::model {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr std::string_view kPrefix = "language_model.";

std::string_view without_prefix(std::string_view name) {
    return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

// Tensors that checkpoints carry and nobody reads: tables that are computed, and the MTP layer's
// copies of the embedding and the head.
bool is_ignored(std::string_view name) {
    return name.ends_with("rotary_emb.inv_freq") ||
           (name.starts_with("model.layers.") &&
            (name.ends_with(".embed_tokens.weight") || name.ends_with(".shared_head.head.weight")));
}

std::optional<DType> dtype_of(std::string_view name) {
    if (name == "F32") return DType::kF32;
    if (name == "BF16") return DType::kBF16;
    if (name == "F8_E4M3") return DType::kF8E4M3;
    return {};
}

struct AllowedTypes {
    const char* text;
    bool bf16, fp8;
};
AllowedTypes allowed_types(TensorKind kind) {
    switch (kind) {
        case TensorKind::kWeight: return {"F8_E4M3, BF16 or F32", true, true};
        case TensorKind::kPlain: return {"BF16 or F32", true, false};
        case TensorKind::kScale: break;
    }
    return {"F32", false, false};
}

struct Place {
    const TensorFile* file;
    const TensorInfo* info;
};

class Checkpoint : public TensorSource {
  public:
    Checkpoint(std::string folder, bool mapped) : folder_(std::move(folder)), mapped_(mapped) {}

    Status open_files();
    Result<TensorBytes> load(const TensorSpec& spec, int64_t row_begin, int64_t row_end) override;
    bool has(const std::string& name) const override { return places_.contains(name); }
    std::string description() const override {
        return fmt::format("{} ({} files, {})", folder_, files_.size(),
                           mapped_ ? "mapped" : "read in parallel");
    }

  private:
    Result<std::vector<std::string>> file_names();
    Status add_file(const std::string& path);
    Result<Place> find(const TensorSpec& spec) const;

    std::string folder_;
    bool mapped_;
    std::vector<std::unique_ptr<TensorFile>> files_;
    std::unordered_map<std::string, Place> places_;             // by name without prefix
    std::unordered_map<std::string, std::string> index_files_;  // where the index says it is
};

bool exists(const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0;
}

Result<std::vector<std::string>> Checkpoint::file_names() {
    const std::string index_path = folder_ + "/" + kIndexName;
    if (!exists(index_path)) {
        if (exists(folder_ + "/" + kSingleName)) return std::vector<std::string>{kSingleName};
        return error("{}: holds neither {} nor {}", folder_, kIndexName, kSingleName);
    }
    auto index = read_json_file(index_path);
    if (!index) return index.error();
    const Json& map = (*index)["weight_map"];
    if (!map.is_object() || map.as_object().empty())
        return error("{}: weight_map: found {}, expected an object that names files", index_path,
                     map.is_object() ? "an empty object" : map.type_name());
    std::set<std::string> names;
    for (const auto& [tensor, file] : map.as_object()) {
        if (!file.is_string())
            return error("{}: tensor {}: found {}, expected the name of a file", index_path, tensor,
                         file.dump());
        const std::string& name = file.as_string();
        if (name.empty() || name == "." || name == ".." ||
            name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
            return error("{}: tensor {}: found {}, expected the name of a file in this folder",
                         index_path, tensor, file.dump());
        }
        names.insert(name);
        index_files_.emplace(without_prefix(tensor), name);
    }
    return std::vector<std::string>(names.begin(), names.end());
}

Status Checkpoint::add_file(const std::string& path) {
    auto file = TensorFile::open(path, mapped_);
    if (!file) return file.error();
    for (const TensorInfo& info : (*file)->tensors()) {
        const std::string_view name = without_prefix(info.name);
        if (is_ignored(name)) continue;
        const auto [at, added] = places_.emplace(name, Place{file->get(), &info});
        if (!added) {
            return error("{}: tensor {}: is also in {} as {}", path, info.name,
                         at->second.file->path(), at->second.info->name);
        }
    }
    files_.push_back(*std::move(file));
    return {};
}

Status Checkpoint::open_files() {
    auto names = file_names();
    if (!names) return names.error();
    for (const std::string& name : *names) RETURN_IF_ERROR(add_file(folder_ + "/" + name));
    return {};
}

Result<Place> Checkpoint::find(const TensorSpec& spec) const {
    const auto at = places_.find(spec.name);
    if (at == places_.end()) {
        const auto indexed = index_files_.find(spec.name);
        if (indexed == index_files_.end())
            return error("{}: tensor {}: is missing from the checkpoint", folder_, spec.name);
        return error("{}/{}: tensor {}: is missing; {} places it in this file", folder_,
                     indexed->second, spec.name, kIndexName);
    }
    const Place& place = at->second;
    const auto fail = [&](const char* what, const std::string& found, const std::string& expected) {
        return error("{}: tensor {}: {} is {}, expected {}", place.file->path(), place.info->name,
                     what, found, expected);
    };
    std::vector<int64_t> shape = {spec.rows};
    if (spec.cols != 0) shape.push_back(spec.cols);
    if (place.info->shape != shape)
        return fail("shape", shape_text(place.info->shape), shape_text(shape));
    const auto dtype = dtype_of(place.info->dtype);
    const AllowedTypes allowed = allowed_types(spec.kind);
    if (!dtype || (*dtype == DType::kBF16 && !allowed.bf16) ||
        (*dtype == DType::kF8E4M3 && !allowed.fp8)) {
        return fail("dtype", place.info->dtype, allowed.text);
    }
    return place;
}

Result<TensorBytes> Checkpoint::load(const TensorSpec& spec, int64_t row_begin, int64_t row_end) {
    CHECK(0 <= row_begin && row_begin <= row_end && row_end <= spec.rows, "rows {}..{} of {}",
          row_begin, row_end, spec.rows);
    auto place = find(spec);
    if (!place) return place.error();
    const TensorInfo& info = *place->info;
    TensorBytes bytes;
    bytes.dtype = *dtype_of(info.dtype);
    const size_t element = size_of(bytes.dtype);
    const uint64_t row_bytes = static_cast<uint64_t>(spec.row_elements()) * element;
    const uint64_t begin = info.begin + static_cast<uint64_t>(row_begin) * row_bytes;
    const uint64_t end = info.begin + static_cast<uint64_t>(row_end) * row_bytes;
    // The format promises no alignment; a tensor that has none is copied.
    if (place->file->mapping() != nullptr && info.begin % element == 0) {
        place->file->will_need(begin, end);
        bytes.data = place->file->mapping() + info.begin;
        return bytes;
    }
    // As large as the whole tensor, so that rows keep their places: pages of large buffers that
    // nothing is read into take no memory.
    bytes.owned = Buffer(info.end - info.begin);
    auto* to = bytes.owned.as<std::byte>() + (begin - info.begin);
    RETURN_IF_ERROR(place->file->read(begin, end, to));
    bytes.data = bytes.owned.data();
    return bytes;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& folder, ReadMode mode) {
    const bool mapped =
        mode == ReadMode::kMap || (mode == ReadMode::kAuto && !on_network_file_system(folder));
    auto checkpoint = std::make_unique<Checkpoint>(folder, mapped);
    RETURN_IF_ERROR(checkpoint->open_files());
    return std::unique_ptr<TensorSource>(std::move(checkpoint));
}

Status check_num_layers(const TensorSource& checkpoint, int num_hidden_layers) {
    const auto has = [&](int layer, const char* tensor) {
        return checkpoint.has(fmt::format("model.layers.{}.{}.weight", layer, tensor));
    };
    // Only a multi-token prediction layer has eh_proj; it comes behind the others.
    for (int layer = 0; layer < num_hidden_layers; ++layer) {
        if (has(layer, "eh_proj"))
            return error("config.json: num_hidden_layers: found {}, expected {}: layer {} of {} is "
                         "its multi-token prediction layer",
                         num_hidden_layers, layer, layer, checkpoint.description());
    }
    if (has(num_hidden_layers, "input_layernorm") && !has(num_hidden_layers, "eh_proj"))
        return error("config.json: num_hidden_layers: found {}, expected more: {} holds a layer {} "
                     "that is no multi-token prediction layer",
                     num_hidden_layers, checkpoint.description(), num_hidden_layers);
    return {};
}

}  // namespace aerie::model
