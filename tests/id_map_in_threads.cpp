// The table of numbers as features/lookup.py shares it between threads, to be built with
// -fsanitize=thread: pipeline/test_threads.py. Writers take turns; they add rows to a table, which grows by
// another taking its place, and then the numbers of the rows. Readers find numbers, then read rows.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels.hpp"

namespace {

constexpr int64_t N_KEYS = 20000, BATCH = 20;
constexpr int N_WRITERS = 3, N_READERS = 5;

uint64_t key_of(int64_t i) { return static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull; }

costner_sparse::IdMap numbers;
std::mutex adding;
std::vector<std::vector<int64_t>> tables;
std::atomic<int64_t*> table{nullptr};
int64_t n_rows = 0, n_places = 0;

void add(const std::vector<int64_t>& words) {
    const std::lock_guard<std::mutex> lock(adding);
    std::vector<uint64_t> keys;
    std::vector<int32_t> rows;
    for (int64_t word : words) {
        uint64_t key = key_of(word);
        int32_t row;
        numbers.find(&key, 1, &row);
        if (row >= 0) continue;
        if (n_rows == n_places) {
            n_places = 2 * n_places + 16;
            tables.emplace_back(n_places);
            std::copy_n(table.load(), n_rows, tables.back().data());
            table.store(tables.back().data());
        }
        table.load()[n_rows] = word;
        keys.push_back(key);
        rows.push_back(static_cast<int32_t>(n_rows++));
    }
    numbers.set(keys.data(), rows.data(), static_cast<int64_t>(keys.size()));
}

// How many words were found with the row of another.
int64_t read(int64_t first) {
    int64_t n_wrong = 0;
    for (int64_t word = first % N_KEYS, i = 0; i < N_KEYS; ++i, word = (word + 7) % N_KEYS) {
        const uint64_t key = key_of(word);
        int32_t row;
        numbers.find(&key, 1, &row);
        n_wrong += row >= 0 && table.load()[row] != word;
    }
    return n_wrong;
}

}  // namespace

int main() {
    std::atomic<int> n_writing{N_WRITERS};
    std::atomic<int64_t> n_wrong{0};
    std::vector<std::thread> threads;
    tables.reserve(64);
    for (int w = 0; w < N_WRITERS; ++w)
        threads.emplace_back([&, w] {
            for (int64_t first = w * BATCH / 2; first < N_KEYS; first += BATCH) {
                std::vector<int64_t> words;
                for (int64_t i = first; i < first + BATCH && i < N_KEYS; ++i) words.push_back(i);
                add(words);
            }
            --n_writing;
        });
    for (int r = 0; r < N_READERS; ++r)
        threads.emplace_back([&, r] {
            while (n_writing > 0) n_wrong += read(r * 1000);
        });
    for (std::thread& thread : threads) thread.join();
    n_wrong += read(0);
    std::printf("%ld keys, %ld wrong\n", static_cast<long>(n_rows), static_cast<long>(n_wrong));
    return n_rows != N_KEYS || n_wrong != 0;
}
