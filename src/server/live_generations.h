// LiveGenerations: which generations run under which name (rid), so that a client can end its own by name.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "server/generation.h"

namespace gimbal {

// Used on the I/O thread. Names need not be unique; an abort ends all of that exact name.
class LiveGenerations {
 public:
  // The name is known while the entry lives; it must end before the generation.
  class Entry {
   public:
    Entry(LiveGenerations& all, const std::string& name, Generation* generation, size_t choice)
        : all_(&all), place_(all.names_.emplace(name, std::pair(generation, choice))) {}
    Entry(Entry&& other) noexcept : all_(std::exchange(other.all_, nullptr)), place_(other.place_) {}
    Entry& operator=(Entry&&) = delete;
    ~Entry() {
      if (all_ != nullptr) all_->names_.erase(place_);
    }

   private:
    LiveGenerations* all_;
    std::multimap<std::string, std::pair<Generation*, size_t>>::iterator place_;
  };

  // How many choices were asked to end.
  int64_t abort(const std::string& name) {
    const auto [begin, end] = names_.equal_range(name);
    for (auto entry = begin; entry != end; ++entry) entry->second.first->abort(entry->second.second);
    return std::distance(begin, end);
  }

 private:
  std::multimap<std::string, std::pair<Generation*, size_t>> names_;  // name -> generation, choice
};

}  // namespace gimbal
