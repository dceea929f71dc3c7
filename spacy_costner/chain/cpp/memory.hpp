// Aligned scratch memory for vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace costner {

constexpr std::size_t ALIGNMENT = 64;

// An uninitialized array of `size` numbers, aligned for all vector types.
template <class Number>
class Buffer {
  public:
    explicit Buffer(std::size_t size = 0)
        : memory_(std::malloc(size * sizeof(Number) + ALIGNMENT)) {
        if (!memory_) throw std::bad_alloc();
        const auto address = reinterpret_cast<std::uintptr_t>(memory_);
        first_ = reinterpret_cast<Number*>((address + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
    Buffer(Buffer&& other) noexcept : memory_(other.memory_), first_(other.first_) {
        other.memory_ = nullptr;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(Buffer other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(first_, other.first_);
        return *this;
    }
    ~Buffer() { std::free(memory_); }

    operator Number*() { return first_; }
    operator const Number*() const { return first_; }

  private:
    void* memory_;
    Number* first_;
};

}  // namespace costner
