// Holds the precompiled GoogleTest headers that every test binary shares.
