#include "tensor/kv_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

namespace aerie {
namespace {

// Three layers of 5 tokens of 7 values: blocks of 70 bytes, no whole number of words.
struct KvFileTest : testing::Test {
    KvFileTest() : pool(shape) {
        char path[] = "/tmp/aerie_kv_file_XXXXXX";
        folder = mkdtemp(path);
    }
    ~KvFileTest() override { std::filesystem::remove_all(folder); }

    void fill(int64_t block, int value) {
        for (int layer = 0; layer < 3; ++layer)
            std::memset(pool.block(layer, block), value + layer, pool.block_bytes());
    }
    bool holds(int64_t block, int value) {
        for (int layer = 0; layer < 3; ++layer)
            for (size_t i = 0; i < pool.block_bytes(); ++i)
                if (pool.block(layer, block)[i] != std::byte(value + layer)) return false;
        return true;
    }

    KvPoolShape shape{
        .num_layers = 3, .num_blocks = 4, .page_size = 5, .width = 7, .dtype = DType::kBF16};
    KvPool pool;
    std::string folder;
};

TEST_F(KvFileTest, GivesBackWhatWasWrittenAndHasNoName) {
    auto file = KvFile::create(folder, shape);
    ASSERT_TRUE(file) << file.message();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    for (int slot = 0; slot < 3; ++slot) {
        fill(slot, 10 * slot);
        (*file)->write(slot, pool, slot);
    }
    for (int slot = 0; slot < 3; ++slot) {
        ASSERT_TRUE((*file)->read(slot, pool, 3));
        EXPECT_TRUE(holds(3, 10 * slot));
    }
    fill(0, 90);
    (*file)->write(1, pool, 0);
    ASSERT_TRUE((*file)->read(1, pool, 2));
    EXPECT_TRUE(holds(2, 90));
}

TEST_F(KvFileTest, AnyChangedByteIsSeen) {
    const std::string path = folder + "/file";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    const size_t page_bytes = 3 * pool.block_bytes();
    KvFile file(fd, path, 2, page_bytes);
    fill(0, 40);
    for (size_t at = 0; at < page_bytes; ++at) {
        file.write(1, pool, 0);
        char byte = 0;
        const auto offset = static_cast<off_t>(page_bytes + at);
        ASSERT_EQ(pread(fd, &byte, 1, offset), 1);
        byte ^= static_cast<char>(1 << at % 8);
        ASSERT_EQ(pwrite(fd, &byte, 1, offset), 1);
        EXPECT_FALSE(file.read(1, pool, 1)) << at;
        EXPECT_FALSE(file.read(1, pool, 1)) << "once lost it stays lost";
    }
    EXPECT_TRUE(file.works());
    file.write(1, pool, 0);
    EXPECT_TRUE(file.read(1, pool, 1));
    EXPECT_FALSE(file.read(0, pool, 1)) << "nothing was written there";
}

TEST_F(KvFileTest, AFullDiskTurnsItOff) {
    KvFile file(open("/dev/full", O_RDWR), "/dev/full", 2, 3 * pool.block_bytes());
    file.write(0, pool, 0);
    EXPECT_FALSE(file.works());
    EXPECT_FALSE(file.read(0, pool, 1));
}

TEST_F(KvFileTest, AnErrorOfTheDiskTurnsItOff) {
    const std::string path = folder + "/file";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    KvFile file(fd, path, 2, 3 * pool.block_bytes());
    file.write(0, pool, 0);
    file.write(1, pool, 0);
    ASSERT_EQ(ftruncate(fd, 10), 0);
    EXPECT_FALSE(file.read(0, pool, 1));
    EXPECT_FALSE(file.works());
    EXPECT_FALSE(file.read(1, pool, 1));
}

TEST_F(KvFileTest, WhatCannotBeMadeSaysWhy) {
    auto nowhere = KvFile::create(folder + "/none", shape);
    ASSERT_FALSE(nowhere);
    EXPECT_NE(nowhere.message().find("/none: No such file"), std::string::npos)
        << nowhere.message();
    shape.num_blocks = int64_t{1} << 45;
    auto large = KvFile::create(folder, shape);
    ASSERT_FALSE(large);
    EXPECT_NE(large.message().find(" bytes: "), std::string::npos) << large.message();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace aerie
