#include "http/tls.h"

#include <fmt/core.h>

#include <boost/asio/ssl/context.hpp>

namespace aerie::http {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr const unsigned char kSessionContext[] = "aerie";

Status check(const char* setting, const std::string& file, const error_code& failed) {
    if (!failed) return {};
    return error("{} is {}: {}; expected a PEM file that can be read", setting, file,
                 failed.message());
}

Status load_key(const TlsOptions& options, ssl::context& context) {
    // Without a callback OpenSSL would ask the terminal.
    error_code failed;
    context.set_password_callback([password = options.keyfile_password](
                                      size_t, ssl::context::password_purpose) { return password; },
                                  failed);
    if (!failed) context.use_private_key_file(options.keyfile, ssl::context::pem, failed);
    if (!failed) return {};
    return error("ssl_keyfile is {}: {}; expected a PEM file with the private key of {}{}",
                 options.keyfile, failed.message(), options.certfile,
                 options.keyfile_password.empty() ? "" : " that ssl_keyfile_password opens");
}

// Clients must show a certificate that one of these has signed.
Status require_clients(const std::string& file, ssl::context& context) {
    error_code failed;
    context.load_verify_file(file, failed);
    RETURN_IF_ERROR(check("ssl_ca_certs", file, failed));
    context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, failed);
    SSL_CTX_set_client_CA_list(context.native_handle(), SSL_load_client_CA_file(file.c_str()));
    return {};
}

}  // namespace

TlsContext::TlsContext(std::unique_ptr<ssl::context> context) : context_(std::move(context)) {}
TlsContext::~TlsContext() = default;

Result<std::unique_ptr<TlsContext>> TlsContext::load(const TlsOptions& options) {
    auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
    SSL_CTX* const native = context->native_handle();
    SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
    SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION);
    // An idle connection holds no buffers. Writes go on with what is left, wherever that lies then.
    SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                 SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // A record without data, of which a client may send any number, ends a read: else OpenSSL would
    // go on to the next without giving up the thread.
    SSL_CTX_clear_mode(native, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_id_context(native, kSessionContext, sizeof(kSessionContext) - 1);
    error_code failed;
    context->use_certificate_chain_file(options.certfile, failed);
    RETURN_IF_ERROR(check("ssl_certfile", options.certfile, failed));
    RETURN_IF_ERROR(load_key(options, *context));
    if (!options.ca_certs.empty()) RETURN_IF_ERROR(require_clients(options.ca_certs, *context));
    return std::unique_ptr<TlsContext>(new TlsContext(std::move(context)));
}

}  // namespace aerie::http
