// LoadJobs: reads and packs many weights at once, with progress in the log.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/weight_store.h"
#include "tensor/stream.h"

namespace aerie::model {

class LoadJobs {
  public:
    explicit LoadJobs(WeightStore& store) : store_(store) {}

    // When run() succeeds, *into points to the value under `key`. make: as for WeightStore::get.
    // into must stay where it is until then.
    template <typename T, typename Make>
    void add(const T*& into, std::string key, Make make) {
        jobs_.push_back([this, &into, key = std::move(key), make = std::move(make)]() -> Status {
            auto value = store_.get<T>(key, make);
            if (!value) return value.error();
            into = *value;
            return {};
        });
    }

    // Runs all on the stream. `what` names the rank in the log. The error is that of the first job,
    // in the order of add(), that failed.
    Status run(Stream& stream, const std::string& what);

  private:
    WeightStore& store_;
    std::vector<std::function<Status()>> jobs_;
};

}  // namespace aerie::model
