#include "http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "http/testing/server_fixture.h"

namespace aerie::http {
namespace {

using testing::HasSubstr;

// Certificates of this run: server.pem and client.pem with keys, both signed by ca.pem, and one
// more key, encrypted.
const std::string& folder() {
    static const std::string* made = [] {
        auto* path = new std::string(testing::TempDir() + "aerie_tls_" + std::to_string(getpid()));
        std::filesystem::create_directories(*path);
        const std::string script = "cd " + *path + R"( && {
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                -subj /CN=ca -keyout ca.key -out ca.pem
            for name in server client; do
                openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$name \
                    -keyout $name.key -out $name.csr
                openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                    -out $name.pem
            done
            openssl ec -in server.key -aes128 -passout pass:secret -out locked.key
            } >/dev/null 2>&1)";
        EXPECT_EQ(std::system(script.c_str()), 0);
        std::ofstream(*path + "/text.pem") << "no certificate\n";
        return path;
    }();
    return *made;
}
std::string file(const char* name) { return folder() + "/" + name; }

TlsOptions server_options(const char* key = "server.key") {
    return {.certfile = file("server.pem"), .keyfile = file(key)};
}

// A blocking client. A connection that is lost without the end of TLS is not an end.
class TlsClient {
  public:
    explicit TlsClient(int port, const char* certificate = nullptr)
        : context_(SSL_CTX_new(TLS_client_method())) {
        SSL_CTX_load_verify_locations(context_, file("ca.pem").c_str(), nullptr);
        SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
        if (certificate) {
            SSL_CTX_use_certificate_chain_file(context_, (file(certificate) + ".pem").c_str());
            SSL_CTX_use_PrivateKey_file(context_, (file(certificate) + ".key").c_str(),
                                        SSL_FILETYPE_PEM);
        }
        bio_ = BIO_new_ssl_connect(context_);
        BIO_get_ssl(bio_, &ssl_);
        BIO_set_conn_hostname(bio_, ("127.0.0.1:" + std::to_string(port)).c_str());
        connected_ = BIO_do_connect(bio_) == 1;
    }
    ~TlsClient() {
        BIO_free_all(bio_);
        SSL_CTX_free(context_);
        ERR_clear_error();
    }
    bool connected() const { return connected_; }
    void send(const std::string& text) {
        SSL_write(ssl_, text.data(), static_cast<int>(text.size()));
    }
    void end_sending() { SSL_shutdown(ssl_); }
    // `num` records that hold no data, then the text. All at once, so that they come faster than
    // they are read.
    void send_after_key_updates(int num, const std::string& text) {
        BIO* const socket = SSL_get_rbio(ssl_);
        BIO* const records = BIO_new(BIO_s_mem());
        BIO_up_ref(socket);
        SSL_set0_wbio(ssl_, records);
        for (int i = 0; i < num; ++i) {
            SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
            SSL_do_handshake(ssl_);
        }
        send(text);
        char* bytes = nullptr;
        const long size = BIO_get_mem_data(records, &bytes);
        EXPECT_EQ(BIO_write(socket, bytes, static_cast<int>(size)), size);
        SSL_set0_wbio(ssl_, socket);
    }
    std::string receive_some() {
        char bytes[4096];
        const int size = SSL_read(ssl_, bytes, sizeof bytes);
        return size > 0 ? std::string(bytes, static_cast<size_t>(size)) : "";
    }
    std::string receive_all() {
        std::string all;
        for (std::string some; !(some = receive_some()).empty();) all += some;
        return all;
    }
    bool ended_in_order() const { return SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN; }

  private:
    SSL_CTX* context_;
    BIO* bio_;
    SSL* ssl_;
    bool connected_;
};

class TlsTest : public ServerTest {
  protected:
    void start_tls(ServerOptions options = {}) {
        if (options.tls.certfile.empty()) options.tls = server_options();
        start(options);
    }
};

TEST_F(TlsTest, AnswersStreamsAndEndsInOrder) {
    start_tls();
    TlsClient c(server_->port());
    ASSERT_TRUE(c.connected());
    c.send("GET /a HTTP/1.1\r\n\r\n");
    EXPECT_THAT(c.receive_some(), testing::EndsWith("GET /a? [] "));
    c.send("GET /stream HTTP/1.0\r\n\r\n");  // its end is the connection's
    EXPECT_THAT(c.receive_all(), testing::EndsWith("one two three"));
    EXPECT_TRUE(c.ended_in_order());
}

TEST_F(TlsTest, LargeBodiesAndRefusalsComeThrough) {
    start_tls({.max_body_bytes = 3 << 20});
    const std::string body(2 << 20, 'x');
    {
        TlsClient c(server_->port());
        c.send("POST /b HTTP/1.1\r\nConnection: close\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n");
        c.send(body);
        EXPECT_THAT(c.receive_all(), testing::EndsWith("POST /b? [] " + body));
    }
    TlsClient c(server_->port());
    c.send("POST /b HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n");
    c.send(body);
    EXPECT_THAT(c.receive_all(), HasSubstr("HTTP/1.1 413 "));
    EXPECT_TRUE(c.ended_in_order());
}

TEST_F(TlsTest, RecordsWithoutDataKeepNobodyElseWaiting) {
    start_tls({.io_threads = 1});
    TlsClient brief(server_->port()), busy(server_->port()), other(server_->port());
    brief.send_after_key_updates(3, "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(brief.receive_all(), HasSubstr("200 OK"));
    busy.send_after_key_updates(20000, "GET /hold HTTP/1.1\r\n\r\n");
    other.send("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(other.receive_all(), HasSubstr("200 OK"));
    server_->stop(0);
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(held_.empty());  // long before all of them were read
}

TEST_F(TlsTest, AClientThatLeavesIsSeen) {
    start_tls();
    auto c = std::make_unique<TlsClient>(server_->port());
    c->send("GET /hold HTTP/1.1\r\n\r\n");
    held();
    c.reset();
    EXPECT_TRUE(wait_disconnects(1));
}

TEST_F(TlsTest, AHalfCloseIsAnswered) {
    start_tls();
    TlsClient c(server_->port());
    c.send("GET /hold HTTP/1.1\r\n\r\n");
    Responder responder = held();
    c.end_sending();
    responder.send(200, "text/plain", "late");
    EXPECT_THAT(c.receive_all(), HasSubstr("late"));
}

TEST_F(TlsTest, BadClientsAreClosed) {
    start_tls({.header_timeout_s = 0.2});
    TestClient plain(server_->port()), silent(server_->port());
    plain.send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(plain.receive_end());
    EXPECT_THAT(plain.received(), testing::Not(HasSubstr("HTTP/1.1")));
    EXPECT_TRUE(silent.receive_end());
    TlsClient good(server_->port());
    good.send("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(good.receive_all(), HasSubstr("200 OK"));
}

TEST_F(TlsTest, ClientsMustShowACertificateWhereCaCertsIsSet) {
    ServerOptions options;
    options.tls = server_options();
    options.tls.ca_certs = file("ca.pem");
    start_tls(options);
    TlsClient known(server_->port(), "client"), unknown(server_->port());
    known.send("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(known.receive_all(), HasSubstr("200 OK"));
    unknown.send("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(unknown.receive_all(), "");
}

TEST_F(TlsTest, StopEndsHandshakesThatHang) {
    start_tls();
    TestClient silent(server_->port());
    const TimePoint begin = Clock::now();
    while (server_->num_connections() == 0 && seconds_between(begin, Clock::now()) < 5) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    server_->stop(5);
    EXPECT_LT(seconds_between(begin, Clock::now()), 4);
    EXPECT_EQ(server_->num_connections(), 0);
}

TEST(TlsContext, SaysWhichFileCannotBeUsedAndWhy) {
    TlsOptions locked = server_options("locked.key");
    locked.keyfile_password = "secret";
    EXPECT_TRUE(TlsContext::load(locked).ok()) << TlsContext::load(locked).message();
    TlsOptions wrong_ca = server_options();
    wrong_ca.ca_certs = file("text.pem");
    const struct {
        TlsOptions options;
        std::vector<std::string> parts;
    } kCases[] = {
        {{.certfile = "/none.pem", .keyfile = file("server.key")},
         {"ssl_certfile is /none.pem: No such file or directory"}},
        {{.certfile = file("text.pem"), .keyfile = file("server.key")},
         {"ssl_certfile is ", "/text.pem: no start line", "expected a PEM file"}},
        {server_options("none.key"), {"ssl_keyfile is ", "none.key: No such file"}},
        {server_options("client.key"), {"client.key: key values mismatch", "private key of "}},
        {server_options("locked.key"), {"ssl_keyfile is ", "locked.key: "}},
        {wrong_ca, {"ssl_ca_certs is ", "text.pem: "}},
    };
    for (const auto& test : kCases) {
        const auto loaded = TlsContext::load(test.options);
        ASSERT_FALSE(loaded.ok()) << test.parts[0];
        for (const auto& part : test.parts) EXPECT_THAT(loaded.message(), HasSubstr(part));
    }
}

}  // namespace
}  // namespace aerie::http
