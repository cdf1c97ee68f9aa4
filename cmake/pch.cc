// Owns the precompiled headers that the other targets share (folder.cmake).
