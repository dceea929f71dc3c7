// The functions called from Python. They use the kernels for the fastest instruction set of the machine, so that one
// binary runs on every machine, and include functions that don't benefit from vectorization.

#include "kernels.hpp"

#include <atomic>

#include "k_best.hpp"

namespace costner {

namespace {

std::vector<const InstructionSet*> find_instruction_sets() {
    std::vector<const InstructionSet*> sets;
#if ON_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(&avx2_kernels);
#endif
    sets.push_back(&baseline_kernels);
    return sets;
}

const std::vector<const InstructionSet*> all_sets = find_instruction_sets();
std::atomic<const InstructionSet*> in_use{all_sets[0]};

}  // namespace

std::unique_ptr<Messages> make_forward_backward(const Potentials& scores, int n_threads) {
    return in_use.load()->make_forward_backward(scores, n_threads);
}

std::unique_ptr<Messages> make_max_messages(const Potentials& scores, int n_threads) {
    return in_use.load()->make_max_messages(scores, n_threads);
}

void best_path(const Potentials& scores, const Allowed* excluded, int64_t* tags, double* path_scores, int n_threads) {
    in_use.load()->best_path(scores, excluded, tags, path_scores, n_threads);
}

std::unique_ptr<Query> path_score(const Potentials& scores, const int64_t* tags, double* path_scores) {
    return std::make_unique<PathScore>(scores, tags, path_scores);
}

void k_best(const Potentials& scores, int64_t k, int64_t* tags, double* path_scores, int n_threads) {
    const Chain chain(scores);
    const Schedule schedule(chain.lengths, chain.n_sequences, 1, n_threads);
    for (int64_t s = 0; s < chain.n_sequences; s++)
        if (chain.lengths[s] == 0) path_scores[s] = 0;
    in_threads(schedule.groups(), n_threads, [&](const Group& group, int) {
        KBest(chain, k).run(group.sequences[0], tags, path_scores);
    });
}

std::vector<const char*> instruction_sets() {
    std::vector<const char*> names;
    for (const InstructionSet* set : all_sets) names.push_back(set->name);
    return names;
}

void use_instruction_set(int which) { in_use = all_sets[which]; }

}  // namespace costner
