#pragma once

#include <memory>
#include <utility>

#include "storage/metastore.h"
#include "storage/testing/fault_plan.h"

namespace sluice::storage {

// A metastore that fails by plan, for tests.
class FaultMetaStore final : public MetaStore {
 public:
  FaultMetaStore(std::shared_ptr<MetaStore> real, std::shared_ptr<FaultPlan> plan)
      : real_(std::move(real)), plan_(std::move(plan)) {}

  Result<ContainerInfo> create(const ContainerAttributes& attributes, uint64_t now_s) override {
    return step<ContainerInfo>([&] { return real_->create(attributes, now_s); });
  }
  Result<ContainerInfo> find(const std::string& path) override {
    return step<ContainerInfo>([&] { return real_->find(path); });
  }
  Result<ContainerInfo> find(ContainerId id) override {
    return step<ContainerInfo>([&] { return real_->find(id); });
  }
  Result<std::vector<ContainerInfo>> list(const std::string& path) override {
    return step<std::vector<ContainerInfo>>([&] { return real_->list(path); });
  }
  Result<> remove(ContainerId id) override {
    return step<void>([&] { return real_->remove(id); });
  }
  Result<> shape(ContainerId id, Length chunk_size, const std::string& reason) override {
    return step<void>([&] { return real_->shape(id, chunk_size, reason); });
  }
  Result<uint64_t> allot(const std::string& name, uint64_t count) override {
    return step<uint64_t>([&] { return real_->allot(name, count); });
  }
  Result<> advance(ContainerId id, Epoch from, Epoch to, Length size, const std::string& delta,
                   uint64_t now_s) override {
    return step<void>([&] { return real_->advance(id, from, to, size, delta, now_s); });
  }
  Result<std::vector<std::string>> steps(ContainerId id) override {
    return step<std::vector<std::string>>([&] { return real_->steps(id); });
  }
  Result<> aggregate(ContainerId id, Epoch to, const std::string& merged) override {
    return step<void>([&] { return real_->aggregate(id, to, merged); });
  }
  Result<std::optional<std::string>> get(const std::string& key) override {
    return step<std::optional<std::string>>([&] { return real_->get(key); });
  }
  Result<> put(const std::string& key, const std::string& value) override {
    return step<void>([&] { return real_->put(key, value); });
  }

 private:
  template <class T, class F>
  Result<T> step(F&& operation) {
    const uint64_t turn = plan_->begin();
    if (auto fault = plan_->before(turn)) return fail(*std::move(fault));
    Result<T> result = operation();
    if (auto fault = plan_->after(turn)) return fail(*std::move(fault));
    return result;
  }

  std::shared_ptr<MetaStore> real_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace sluice::storage
