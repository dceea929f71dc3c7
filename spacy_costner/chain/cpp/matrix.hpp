// Products of a few rows with the transition matrix, over either semiring.
//
// The columns are divided into panels of at most PANEL vectors. A panel lists its sources, i.e. the rows of the matrix
// with an entry in the panel, and stores their entries row by row. Forbidden transitions are therefore free if an
// entire row of a panel is forbidden. Up to ROWS rows of messages are multiplied at once, with the results in
// registers.

// (+, *): missing entries are 0.
struct Sums {
    template <class Real>
    inline static const Real absent = 0;
    template <class Real>
    INLINE static Vec<Real> add(Vec<Real> total, Real x, Vec<Real> weights) {
        return total + x * weights;
    }
    template <class Real>
    INLINE static Vec<Real> join(Vec<Real> a, Vec<Real> b) { return a + b; }
};

// (max, +): missing entries are minus infinity.
struct Maxima {
    template <class Real>
    inline static const Real absent = Real(-INFINITY);
    template <class Real>
    INLINE static Vec<Real> add(Vec<Real> total, Real x, Vec<Real> weights) {
        return larger<Real>(x + weights, total);
    }
    template <class Real>
    INLINE static Vec<Real> join(Vec<Real> a, Vec<Real> b) { return larger<Real>(a, b); }
};

// Adjacent columns of a matrix.
template <class Real>
struct Panel {
    int column;          // the first column
    int n_vectors;       // the width, in vectors
    int first_source;    // the index of its sources in Matrix::sources
    int n_sources;
    std::size_t offset;  // the index of its entries in Matrix::entries: (n_sources, n_vectors * lanes)
};

// Returns the transpose. Rows are padded with `absent` to `width` numbers.
template <class Real>
Buffer<Real> transpose(const Real* rows, int n_tags, int width, Real absent) {
    Buffer<Real> columns(static_cast<std::size_t>(n_tags) * width);
    std::fill_n(columns + 0, static_cast<std::size_t>(n_tags) * width, absent);
    for (int i = 0; i < n_tags; i++, rows += width)
        for (int j = 0; j < n_tags; j++) columns[static_cast<std::size_t>(j) * width + i] = rows[j];
    return columns;
}

// Returns the width of rows for a number of tags, rounded up to full vectors.
template <class Real>
INLINE int padded(int n_tags) { return (n_tags + LANES<Real> - 1) / LANES<Real> * LANES<Real>; }

// A matrix divided into panels. See above.
template <class Real>
class Matrix {
  public:
    // entries: The rows, (n_tags, padded<Real>(n_tags)), with the semiring's `absent` for missing entries.
    template <class Semiring>
    static Matrix pack(const Real* entries, int n_tags, Semiring) {
        Matrix matrix;
        const int width = matrix.width = padded<Real>(n_tags), n_vectors = width / LANES<Real>;
        const int n_panels = (n_vectors + MOST_VECTORS - 1) / MOST_VECTORS;
        matrix.entries = Buffer<Real>(static_cast<std::size_t>(n_tags) * width);
        matrix.sources.reserve(static_cast<std::size_t>(n_tags) * n_panels);
        for (int p = 0; p < n_panels; p++) {
            const int first = n_vectors * p / n_panels, past = n_vectors * (p + 1) / n_panels;
            matrix.add_panel(entries, n_tags, width, first * LANES<Real>, past - first,
                             Semiring::template absent<Real>);
        }
        return matrix;
    }

    static constexpr int MOST_VECTORS = std::is_same_v<Real, Extended> ? 64 : PANEL;
    int width = 0;             // of a row, in full vectors
    std::size_t size = 0;      // the total number of entries in all panels
    Buffer<Real> entries;      // panel by panel
    std::vector<int> sources;  // panel by panel
    std::vector<Panel<Real>> panels;

  private:
    // Adds a panel, including only the rows with any entry.
    void add_panel(const Real* from, int n_tags, int width, int column, int n_vectors,
                   Real absent) {
        Panel<Real> panel = {column, n_vectors, static_cast<int>(sources.size()), 0, size};
        const int panel_width = n_vectors * LANES<Real>;
        for (int i = 0; i < n_tags; i++) {
            const Real* row = from + static_cast<std::size_t>(i) * width + column;
            if (std::all_of(row, row + panel_width, [=](Real x) { return x == absent; })) continue;
            std::copy(row, row + panel_width, entries + size);
            sources.push_back(i);
            size += panel_width;
        }
        panel.n_sources = static_cast<int>(sources.size()) - panel.first_source;
        panels.push_back(panel);
    }
};

// Multiplies rows by a panel: totals[r] = sum over sources s of rows[r][s] * entries[s]. For a small number of rows,
// several partial totals per row are used to hide the latency of additions.
template <class Semiring, class Real, int N_ROWS, int N_VECTORS>
INLINE void multiply_panel(const Real* const* rows, const int* sources, int n_sources,
                           const Real* entries, Vec<Real> (&totals)[N_ROWS][N_VECTORS]) {
    constexpr int PARTS = N_ROWS * N_VECTORS >= 6 ? 1 : N_ROWS * N_VECTORS >= 3 ? 2 : 4;
    Vec<Real> parts[PARTS][N_ROWS][N_VECTORS];
    for (int part = 0; part < PARTS; part++)
        for (int r = 0; r < N_ROWS; r++)
            for (int v = 0; v < N_VECTORS; v++)
                parts[part][r][v] = splat(Semiring::template absent<Real>);
    const auto add_source = [&](std::ptrdiff_t k, int part) INLINE_LAMBDA {
        Vec<Real> weights[N_VECTORS];
        for (int v = 0; v < N_VECTORS; v++)
            weights[v] = load(entries + (k * N_VECTORS + v) * LANES<Real>);
        for (int r = 0; r < N_ROWS; r++)
            for (int v = 0; v < N_VECTORS; v++)
                parts[part][r][v] = Semiring::template add<Real>(
                    parts[part][r][v], rows[r][sources[k]], weights[v]);
    };
    std::ptrdiff_t k = 0;
    for (; k + PARTS <= n_sources; k += PARTS)
        for (int part = 0; part < PARTS; part++) add_source(k + part, part);
    for (; k < n_sources; k++) add_source(k, 0);
    for (int r = 0; r < N_ROWS; r++)
        for (int v = 0; v < N_VECTORS; v++) {
            totals[r][v] = parts[0][r][v];
            for (int part = 1; part < PARTS; part++)
                totals[r][v] = Semiring::template join<Real>(totals[r][v], parts[part][r][v]);
        }
}

// Multiplies N_ROWS rows by a panel and passes the products to finish(row, column, products), one vector at a time. The
// numbers of rows and vectors are compile-time constants, so that the totals stay in registers.
template <class Semiring, class Real, int N_ROWS, int N_VECTORS = PANEL, class Finish>
INLINE void multiply_by_width(const Matrix<Real>& matrix, const Panel<Real>& panel, const Real* const* rows,
                              Finish& finish) {
    if constexpr (N_VECTORS > 1)
        if (panel.n_vectors < N_VECTORS)
            return multiply_by_width<Semiring, Real, N_ROWS, N_VECTORS - 1>(matrix, panel, rows, finish);
    Vec<Real> totals[N_ROWS][N_VECTORS];
    multiply_panel<Semiring>(rows, matrix.sources.data() + panel.first_source, panel.n_sources,
                             matrix.entries + panel.offset, totals);
    for (int r = 0; r < N_ROWS; r++)
        for (int v = 0; v < N_VECTORS; v++) finish(r, panel.column + v * LANES<Real>, totals[r][v]);
}

// Multiplies 1 to ROWS rows by all panels of a matrix. The kernels are compiled for each `finish`.
template <class Semiring, class Real, int N_ROWS = ROWS, class Finish>
void multiply_panels(const Matrix<Real>& matrix, const Real* const* rows, int n_rows, Finish& finish) {
    if (n_rows == N_ROWS)
        for (const Panel<Real>& panel : matrix.panels)
            multiply_by_width<Semiring, Real, N_ROWS>(matrix, panel, rows, finish);
    else if constexpr (N_ROWS > 1)
        multiply_panels<Semiring, Real, N_ROWS - 1>(matrix, rows, n_rows, finish);
}

// Multiplies 1 to ROWS rows by a matrix. Shape of the products: (n_rows, width).
template <class Semiring, class Real>
void multiply_rows(const Matrix<Real>& matrix, const Real* const* rows, int n_rows, Real* products) {
    const int width = matrix.width;
    const auto keep = [=](int r, int column, Vec<Real> values) INLINE_LAMBDA {
        store(products + r * width + column, values);
    };
    multiply_panels<Semiring>(matrix, rows, n_rows, keep);
}

// Returns the factor for the mantissa of an Extended if its exponent is increased by -d: 2^(256 d), for d <= 0. Factors
// below 2^-512 are negligible.
INLINE double step_down(double d) { return d == 0 ? 1.0 : d == -1 ? 0x1p-256 : d == -2 ? 0x1p-512 : 0.0; }

// Multiplies rows of extended numbers. To process many numbers at once, exponents are computed before mantissas.
template <class Semiring>
void multiply_rows(const Matrix<Extended>& matrix, const Extended* const* rows, int n_rows, Extended* products) {
    constexpr int MOST = Matrix<Extended>::MOST_VECTORS;
    for (int r = 0; r < n_rows; r++)
        for (const Panel<Extended>& panel : matrix.panels) {
            const Extended* row = rows[r];
            const int* sources = matrix.sources.data() + panel.first_source;
            const int n = panel.n_vectors;
            double sum[MOST], exponent[MOST];
            std::fill_n(sum, n, 0.0);
            std::fill_n(exponent, n, -INFINITY);
            const Extended* entries = matrix.entries + panel.offset;
            for (int k = 0; k < panel.n_sources; k++, entries += n)
                for (int j = 0; j < n; j++)
                    exponent[j] = std::max(exponent[j], row[sources[k]].exponent + entries[j].exponent);
            entries = matrix.entries + panel.offset;
            for (int k = 0; k < panel.n_sources; k++, entries += n) {
                const Extended x = row[sources[k]];
                for (int j = 0; j < n; j++)
                    sum[j] += x.mantissa * entries[j].mantissa *
                              step_down(x.exponent + entries[j].exponent - exponent[j]);
            }
            for (int j = 0; j < n; j++) products[r * matrix.width + panel.column + j] = settled(sum[j], exponent[j]);
        }
}

// Multiplies 1 to ROWS rows of messages by a matrix and passes the products to finish(row, column, products), one
// vector at a time. The products are first stored in `products`, (ROWS, width), so that the kernels, which take half of
// the compile time, are compiled only once for all `finish` functions.
template <class Semiring, class Real, class Finish>
INLINE void multiply(const Matrix<Real>& matrix, const Real* const* rows, int n_rows, Buffer<Real>& products,
                     Finish& finish) {
    multiply_rows<Semiring>(matrix, rows, n_rows, static_cast<Real*>(products));
    const int width = matrix.width;
    const Real* row = products;
    for (int r = 0; r < n_rows; r++, row += width)
        for (int k = 0; k < width; k += LANES<Real>) finish(r, k, load(row + k));
}

// sums[r] += sum over t of before[t][sources[r]] * ahead[t], both with `width` entries per row.
template <class Real, int N_ROWS, int N_VECTORS>
INLINE void add_outer_rows(const Real* before, const Real* ahead, int width, int n_steps,
                           const int* sources, Real* sums) {
    Vec<Real> totals[N_ROWS][N_VECTORS];
    for (int r = 0; r < N_ROWS; r++)
        for (int v = 0; v < N_VECTORS; v++) totals[r][v] = splat(Real(0));
    for (int t = 0; t < n_steps; t++, before += width, ahead += width) {
        Vec<Real> x[N_VECTORS];
        for (int v = 0; v < N_VECTORS; v++) x[v] = load(ahead + v * LANES<Real>);
        for (int r = 0; r < N_ROWS; r++)
            for (int v = 0; v < N_VECTORS; v++) totals[r][v] += before[sources[r]] * x[v];
    }
    for (int r = 0; r < N_ROWS; r++)
        for (int v = 0; v < N_VECTORS; v++) {
            Real* to = sums + (r * N_VECTORS + v) * LANES<Real>;
            store(to, load(to) + totals[r][v]);
        }
}

// The same, with the numbers of rows and vectors as compile-time constants.
template <class Real, int N_ROWS = ROWS, int N_VECTORS = PANEL>
INLINE void add_outer_block(const Real* before, const Real* ahead, int width, int n_steps,
                            const int* sources, int n_rows, int n_vectors, Real* sums) {
    if (n_vectors < N_VECTORS) {
        if constexpr (N_VECTORS > 1)
            add_outer_block<Real, N_ROWS, N_VECTORS - 1>(before, ahead, width, n_steps, sources,
                                                         n_rows, n_vectors, sums);
    } else if (n_rows < N_ROWS) {
        if constexpr (N_ROWS > 1)
            add_outer_block<Real, N_ROWS - 1, N_VECTORS>(before, ahead, width, n_steps, sources,
                                                         n_rows, n_vectors, sums);
    } else {
        add_outer_rows<Real, N_ROWS, N_VECTORS>(before, ahead, width, n_steps, sources, sums);
    }
}

// The same for extended numbers.
inline void add_outer(const Matrix<Extended>& matrix, const Extended* before, const Extended* ahead, int width,
                      int64_t n_steps, Extended* sums) {
    for (int64_t t = 0; t < n_steps; t++, before += width, ahead += width)
        for (const Panel<Extended>& panel : matrix.panels) {
            Extended* to = sums + panel.offset;
            for (int k = 0; k < panel.n_sources; k++, to += panel.n_vectors) {
                const Extended x = before[matrix.sources[panel.first_source + k]], *y = ahead + panel.column;
                for (int j = 0; j < panel.n_vectors; j++) {
                    const double exponent = x.exponent + y[j].exponent;
                    const double most = std::max(exponent, to[j].exponent);
                    to[j].mantissa = to[j].mantissa * step_down(to[j].exponent - most) +
                                     x.mantissa * y[j].mantissa * step_down(exponent - most);
                    to[j].exponent = most;
                }
            }
        }
    for (std::size_t i = 0; i < matrix.size; i++) sums[i] = settled(sums[i].mantissa, sums[i].exponent);
}

// Adds sum over t of before[t][i] * ahead[t][j] to the sums, for all entries of the matrix and in the same layout.
template <class Real>
void add_outer(const Matrix<Real>& matrix, const Real* before, const Real* ahead, int width,
               int64_t n_steps, Real* sums) {
    constexpr int64_t CHUNK = 64;  // the number of steps that fit in the cache while all panels are processed
    for (int64_t t = 0; t < n_steps; t += CHUNK) {
        const int n = static_cast<int>(std::min(CHUNK, n_steps - t));
        for (const Panel<Real>& panel : matrix.panels) {
            const int* sources = matrix.sources.data() + panel.first_source;
            const int n_blocks = (panel.n_sources + ROWS - 1) / ROWS;
            for (int b = 0; b < n_blocks; b++) {
                const int first = panel.n_sources * b / n_blocks;
                const int past = panel.n_sources * (b + 1) / n_blocks;
                const std::size_t row = static_cast<std::size_t>(panel.n_vectors) * LANES<Real>;
                add_outer_block<Real>(before + t * width, ahead + t * width + panel.column, width,
                                      n, sources + first, past - first, panel.n_vectors,
                                      sums + panel.offset + first * row);
            }
        }
    }
}
