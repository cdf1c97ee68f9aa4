// Every broken configuration is refused with all of its mistakes named: by load_config, and by
// `aerie check`, which must exit with 2.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "broken_configs.h"
#include "config/command_line.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

// A folder with the two files, gone at the end.
class Pair {
  public:
    explicit Pair(const BrokenConfig& broken) {
        std::string pattern = fs::temp_directory_path() / "aerie_config_XXXXXX";
        folder_ = mkdtemp(pattern.data());
        std::ofstream(settings()) << edited(kGoodSettings, broken.edits, false);
        std::ofstream(toml()) << edited(kGoodToml, broken.edits, true);
    }
    ~Pair() { fs::remove_all(folder_); }
    std::string settings() const { return folder_ + "/settings.json"; }
    std::string toml() const { return folder_ + "/config.toml"; }
    std::vector<std::string> arguments(const BrokenConfig& broken) const {
        std::vector<std::string> all = {"--config", settings(), "--ae-config", toml()};
        all.insert(all.end(), broken.arguments.begin(), broken.arguments.end());
        return all;
    }
    // Messages hold the path as it was given; the table has the bare names.
    std::string without_folder(std::string text) const {
        const std::string prefix = folder_ + "/";
        for (size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at)) {
            text.erase(at, prefix.size());
        }
        return text;
    }

  private:
    std::string folder_;
};

struct Outcome {
    int status = -1;
    std::string errors;  // standard error
};

Outcome run_check(const std::vector<std::string>& arguments) {
    std::string command = std::string(AERIE_BINARY) + " check";
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    command += " 2>&1 >/dev/null";
    Outcome outcome;
    std::FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
        outcome.errors.append(buffer, n);
    }
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

std::vector<std::string> error_lines(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        if (line.starts_with("error: ")) lines.push_back(line);
        at = end + 1;
    }
    return lines;
}

class Broken : public testing::TestWithParam<BrokenConfig> {};

TEST_P(Broken, IsRefusedByTheBinaryWithEveryMistakeNamed) {
    const BrokenConfig& broken = GetParam();
    const Pair pair(broken);
    const Outcome outcome = run_check(pair.arguments(broken));
    const std::string text = pair.without_folder(outcome.errors);
    EXPECT_EQ(outcome.status, 2) << text;
    EXPECT_EQ(std::ssize(error_lines(text)), broken.num_errors) << text;
    for (const std::string& message : broken.messages) {
        EXPECT_THAT(text, testing::HasSubstr(message));
    }
}

INSTANTIATE_TEST_SUITE_P(Config, Broken, testing::ValuesIn(broken_configs()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BrokenConfigs, AreManyAndEachNamedOnce) {
    std::set<std::string> names;
    for (const BrokenConfig& broken : broken_configs()) {
        EXPECT_TRUE(names.insert(broken.name).second) << broken.name;
    }
    EXPECT_GE(names.size(), 45u);
}

TEST(GoodConfig, PassesTheBinary) {
    const BrokenConfig good{"good", {}, {}, {}, 0};
    const Pair pair(good);
    const Outcome outcome = run_check(pair.arguments(good));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_EQ(outcome.errors, "");
}

TEST(ShippedConfigs, PassTheBinary) {
    for (const char* name : {"demo", "four-node", "two-node"}) {
        const std::string folder = std::string("configs/") + name;
        const Outcome outcome = run_check({"--config", folder + "/settings.json", "--ae-config",
                                           folder + "/config.toml", "--device", "cpu"});
        EXPECT_EQ(outcome.status, 0) << name << ": " << outcome.errors;
        EXPECT_THAT(outcome.errors, testing::Not(testing::HasSubstr("error"))) << name;
    }
}

TEST(Example, IsAValidPairAndIsNotOverwritten) {
    const BrokenConfig good{"good", {}, {}, {}, 0};
    const Pair pair(good);
    const std::string folder = fs::path(pair.toml()).parent_path() / "new";
    EXPECT_EQ(run_check({"--example", folder}).status, 0);
    const Outcome outcome =
        run_check({"--config", folder + "/settings.json", "--ae-config", folder + "/config.toml"});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    const Outcome again = run_check({"--example", folder});
    EXPECT_EQ(again.status, 2);
    EXPECT_THAT(again.errors, testing::HasSubstr("already there"));
}

}  // namespace
}  // namespace aerie
