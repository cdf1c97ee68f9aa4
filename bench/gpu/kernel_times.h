// When each kernel of the card began and ended, as CUPTI tells: of kernels that are launched one by
// one, not of graphs that were made before.
#pragma once

#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"

namespace aerie::bench {

struct KernelTime {
    std::string name;  // without templates and namespaces
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    double us() const { return static_cast<double>(end_ns - begin_ns) * 1e-3; }
};

class KernelTimes {
  public:
    static void start() {
        kernels().clear();
        check(cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full));
        check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    }
    // In the order in which they began. All work of the card has been waited for.
    static std::vector<KernelTime> stop() {
        check(cuptiActivityFlushAll(0));
        check(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
        std::sort(kernels().begin(), kernels().end(),
                  [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
        return std::move(kernels());
    }

  private:
    static constexpr size_t kBufferBytes = 4 << 20;

    static std::vector<KernelTime>& kernels() {
        static std::vector<KernelTime> found;
        return found;
    }
    static void check(CUptiResult result) {
        const char* text = "";
        if (result != CUPTI_SUCCESS) cuptiGetResultString(result, &text);
        CHECK(result == CUPTI_SUCCESS, "CUPTI: {}", text);
    }
    static void CUPTIAPI buffer_wanted(uint8_t** buffer, size_t* size, size_t* max_records) {
        *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
        *size = kBufferBytes;
        *max_records = 0;
    }
    static void CUPTIAPI buffer_full(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
        CUpti_Activity* record = nullptr;
        while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
            if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
            const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
            kernels().push_back({short_name(kernel->name), static_cast<int64_t>(kernel->start),
                                 static_cast<int64_t>(kernel->end)});
        }
        std::free(buffer);
    }
    static std::string short_name(const char* mangled) {
        int status = 0;
        char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
        std::string name = status == 0 ? demangled : mangled;
        std::free(demangled);
        const std::string anonymous = "(anonymous namespace)::";
        for (size_t at; (at = name.find(anonymous)) != name.npos;) name.erase(at, anonymous.size());
        name.resize(std::min(name.find('<'), name.size()));
        name.resize(std::min(name.find('('), name.size()));
        const size_t space = name.rfind(' '), colons = name.rfind("::");
        if (colons != name.npos) return name.substr(colons + 2);
        return space == name.npos ? name : name.substr(space + 1);
    }
};

}  // namespace aerie::bench
