// Upper bounds of the histograms' buckets.
#pragma once

namespace aerie::metrics::buckets {  // seconds

inline constexpr double kLayer[] = {1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                    1e-3, 2e-3, 5e-3, 1e-2, 1e-1, 1};
inline constexpr double kTransfer[] = {1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2,
                                       1e-1, 3e-1, 1,    3,    10,   30};
inline constexpr double kFirstToken[] = {.1, .2, .4, .6, .8, 1,  2,   4,   6,
                                         8,  10, 20, 40, 60, 80, 100, 200, 400};
inline constexpr double kInterToken[] = {.002, .004, .006, .008, .01, .015, .02, .025,
                                         .03,  .035, .04,  .06,  .08, .1,   .2,  .4,
                                         .6,   .8,   1,    2,    4,   6,    8};
inline constexpr double kEndToEnd[] = {.1, .2, .4, .6, .8,  1,   2,   4,   6,    8,    10,
                                       20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400};
inline constexpr double kQueue[] = {.001, .01, .1, .2, .5, 1,  2,  3,   4,   5,   10,
                                    15,   20,  30, 40, 50, 60, 80, 100, 200, 400, 1000};

}  // namespace aerie::metrics::buckets
