// The one translation unit that includes Boost.Beast, whose headers take longer to compile than the rest of the folder.
// Beast parses requests; answers are written by hand, they are simple.
#include "octavo/server/http_server.h"

#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <set>

#include "octavo/base/error.h"
#include "octavo/server/asking_clients.h"
#include "octavo/server/listen.h"

namespace octavo::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Failure = boost::system::error_code;
using Socket = asio::basic_stream_socket<asio::generic::stream_protocol>;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using Seconds = std::chrono::duration<double>;

constexpr size_t kReadBytes = 4096;
constexpr std::string_view kCrowded = "too many large requests at once";
constexpr size_t kLargeBody = size_t{1} << 20;
constexpr double kLingerSeconds = 2;
constexpr size_t kLingerBytes = size_t{4} << 20;

}  // namespace

class Connection;

// The share of one request in the bytes that are held; given back at the end of its scope.
class HeldBytes {
 public:
  explicit HeldBytes(std::atomic<size_t>& all) : all_(&all) {}
  HeldBytes(HeldBytes&& other) noexcept : all_(other.all_), mine_(std::exchange(other.mine_, 0)) {}
  ~HeldBytes() { Set(0); }
  size_t mine() const { return mine_; }
  void Set(size_t bytes) {
    *all_ += bytes - mine_;
    mine_ = bytes;
  }

 private:
  std::atomic<size_t>* all_;
  size_t mine_ = 0;
};

struct HttpServer::Core : std::enable_shared_from_this<HttpServer::Core> {
  Core(const HttpOptions& given, HttpHandler& answers)
      : options(given), handler(answers), workers(static_cast<size_t>(std::max(given.workers, 1))) {}

  void OpenListener();
  void Accept();
  void Accepted(Socket socket);
  bool HasRoom(const std::string& peer) const;
  bool MakeRoom(const std::string& peer);
  void Relieve();
  void WaitForSignal();
  void Remove(Connection* connection);
  void EndIfEmpty();
  // False after the end: what runs late must not keep connections alive in a queue that nobody empties.
  bool PostWork(std::function<void()> job) {
    const std::lock_guard lock(post_mutex);
    if (ended) return false;
    asio::post(io, std::move(job));
    return true;
  }

  HttpOptions options;
  HttpHandler& handler;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  asio::thread_pool workers;
  Acceptor acceptor{io};
  asio::steady_timer accept_timer{io};
  asio::signal_set signals{io};
  std::function<void(int)> on_signal;
  int signal_count = 0;
  int bound_port = 0;
  std::atomic<bool> ending{false};  // each connection ends with its next answer
  bool closing = false;
  std::set<Connection*> connections;  // network thread
  std::map<std::string, int> per_address;
  AskingClients<Connection> asking;
  std::atomic<int64_t> connection_count{0};
  std::atomic<size_t> held_bytes{0};  // of bodies, until their requests are understood
  std::mutex post_mutex;
  bool ended = false;
};

// One client. Everything runs on the network's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Core = HttpServer::Core;

  Connection(std::shared_ptr<Core> core, Socket socket, std::string peer)
      : core_(std::move(core)),
        socket_(std::move(socket)),
        peer_(std::move(peer)),
        deadline_(core_->io),
        stalled_(core_->io),
        tick_(core_->io),
        buffer_(core_->options.header_bytes + (size_t{128} << 10)),
        held_(core_->held_bytes) {}

  const std::string& peer() const { return peer_; }
  const std::shared_ptr<Core>& core() const { return core_; }
  // Whether it has no answer to wait for, and since when.
  bool asks() const { return state_ == State::kIdle || state_ == State::kReading; }
  std::chrono::steady_clock::time_point since() const { return since_; }
  size_t body_bytes() const { return held_.mine(); }
  void RefuseBody();

  void ReadRequest();
  void Cut();
  // At the server's end: an idle connection is cut, another ends after its answer.
  void EndSoon() {
    if (state_ == State::kIdle || (state_ == State::kReading && !heard_)) return Cut();
    keep_ = false;
  }

  // The methods of an exchange. Those of an earlier one are ignored.
  void Send(uint64_t serial, const HttpResponse& response);
  void Start(uint64_t serial, const HttpResponse& head);
  void Write(uint64_t serial, const std::string& piece);
  void Finish(uint64_t serial);
  void OnClosed(uint64_t serial, std::function<void()> closed);
  void Every(uint64_t serial, double seconds, std::function<void()> work);

 private:
  enum class State : uint8_t { kReading, kAnswering, kIdle, kLingering, kCut };

  void Become(State state);
  bool Current(uint64_t serial) const { return state_ == State::kAnswering && serial == serial_ && !finished_; }
  void SetDeadline(double seconds);
  void OnHeader(Failure failure);
  void ReadBody();
  void OnBody(Failure failure);
  void OnReadFailure(Failure failure);
  std::string ReadHead();
  void Refuse(int status, std::string_view reason);
  void BeginAnswer();
  void Ready();
  void Watch();
  void Append(std::string_view bytes);
  void Flush();
  void WriteSome();
  void Complete();
  void Linger(size_t left);

  std::shared_ptr<Core> core_;
  Socket socket_;
  std::string peer_;
  asio::steady_timer deadline_, stalled_, tick_;
  boost::beast::flat_buffer buffer_;
  HeldBytes held_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  Headers extra_;  // of the answer
  std::function<void()> on_closed_;
  std::string out_, inflight_;
  size_t sent_ = 0;
  uint64_t serial_ = 0;
  std::chrono::steady_clock::time_point since_;
  State state_ = State::kReading;
  bool heard_ = false;        // a byte of the request has come
  bool timed_out_ = false;    // the deadline passed while reading
  bool crowded_ = false;      // its body has to make room
  bool keep_ = true;          // the connection outlives the answer
  bool head_only_ = false;    // HEAD
  bool streaming_ = false;    // the answer comes in pieces
  bool chunks_known_ = true;  // by the client
  bool watching_ = false;
  bool writing_ = false;
  bool finished_ = false;  // the answer is complete, but for writing it
  bool body_left_ = false;
};

namespace {

class ConnectionExchange : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t serial, HttpRequest request, HeldBytes held)
      : connection_(std::move(connection)), serial_(serial), request_(std::move(request)), held_(std::move(held)) {}

  ~ConnectionExchange() override {
    if (answered_) return;
    const std::shared_ptr<Connection> connection = connection_;
    const uint64_t serial = serial_;
    connection->core()->PostWork([connection, serial] {
      connection->Send(serial, connection->core()->handler.Refuse(500, "the request was dropped without an answer"));
    });
  }

  const HttpRequest& request() const override { return request_; }
  void DropBody() override {
    std::string().swap(request_.body);
    held_.Set(0);
  }
  void Send(HttpResponse response) override {
    answered_ = true;
    Run([response = std::move(response)](Connection& c, uint64_t serial) { c.Send(serial, response); });
  }
  void Start(HttpResponse head) override {
    answered_ = true;
    Run([head = std::move(head)](Connection& c, uint64_t serial) { c.Start(serial, head); });
  }
  void Write(std::string piece) override {
    Run([piece = std::move(piece)](Connection& c, uint64_t serial) { c.Write(serial, piece); });
  }
  void Finish() override {
    Run([](Connection& c, uint64_t serial) { c.Finish(serial); });
  }
  void Post(std::function<void()> work) override {
    connection_->core()->PostWork([connection = connection_, work = std::move(work)] { work(); });
  }
  void Every(double seconds, std::function<void()> work) override {
    Run([seconds, work = std::move(work)](Connection& c, uint64_t serial) { c.Every(serial, seconds, work); });
  }
  void OnClosed(std::function<void()> closed) override {
    Run([closed = std::move(closed)](Connection& c, uint64_t serial) { c.OnClosed(serial, closed); });
  }

 private:
  template <typename F>
  void Run(F&& action) {
    const auto executor = connection_->core()->io.get_executor();
    if (executor.running_in_this_thread()) return action(*connection_, serial_);
    connection_->core()->PostWork([connection = connection_, serial = serial_, action = std::forward<F>(action)] {
      action(*connection, serial);
    });
  }

  std::shared_ptr<Connection> connection_;
  uint64_t serial_;
  HttpRequest request_;
  HeldBytes held_;
  std::atomic<bool> answered_{false};
};

}  // namespace

void Connection::SetDeadline(double seconds) {
  deadline_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(Seconds(seconds)));
  deadline_.async_wait([self = shared_from_this()](Failure failure) {
    if (failure || self->state_ == State::kCut || self->state_ == State::kAnswering) return;
    if (self->state_ != State::kReading || !self->heard_) return self->Cut();
    self->timed_out_ = true;
    Failure ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::Become(State state) {
  state_ = state;
  if (!asks()) return core_->asking.Remove(this);
  since_ = std::chrono::steady_clock::now();
  core_->asking.Add(this, peer_);
}

void Connection::ReadRequest() {
  Become(State::kReading);
  timed_out_ = crowded_ = finished_ = body_left_ = false;
  heard_ = buffer_.size() > 0;
  extra_.clear();
  keep_ = !core_->closing;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(core_->options.header_bytes));
  parser_->body_limit(core_->options.body_bytes);
  SetDeadline(core_->options.request_seconds);
  if (heard_) {
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](Failure failure, size_t) { self->OnHeader(failure); });
    return;
  }
  // The first byte is awaited on its own: only a client that has begun a request is told that it was too slow.
  socket_.async_read_some(buffer_.prepare(kReadBytes), [self = shared_from_this()](Failure failure, size_t count) {
    if (failure || self->state_ == State::kCut) return self->Cut();
    self->buffer_.commit(count);
    self->heard_ = true;
    http::async_read_header(self->socket_, self->buffer_, *self->parser_,
                            [self](Failure problem, size_t) { self->OnHeader(problem); });
  });
}

void Connection::OnReadFailure(Failure failure) {
  if (timed_out_) return Refuse(408, "the request took longer than the time allowed for it");
  if (crowded_) return Refuse(429, kCrowded);
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    return Refuse(431, fmt::format("more than {} bytes of headers", core_->options.header_bytes));
  }
  if (failure == http::error::body_limit) {
    return Refuse(413, fmt::format("a body of more than {} bytes", core_->options.body_bytes));
  }
  if (failure == http::error::end_of_stream || failure == http::error::partial_message ||
      failure.category() != http::make_error_code(http::error::bad_method).category()) {
    return Cut();
  }
  Refuse(400, fmt::format("not HTTP: {}", failure.message()));
}

// Copies the head out of the parser. Returns what is wrong with it, if anything.
std::string Connection::ReadHead() {
  const auto& message = parser_->get();
  request_ = HttpRequest{};
  request_.peer = peer_;
  request_.method = std::string(message.method_string());
  request_.chunks_known = chunks_known_ = message.version() >= 11;
  head_only_ = request_.method == "HEAD";
  keep_ = keep_ && message.keep_alive();
  int hosts = 0, lengths = 0, encodings = 0, keys = 0, origins = 0;
  std::string encoding;
  for (const auto& field : message) {
    request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    hosts += field.name() == http::field::host;
    lengths += field.name() == http::field::content_length;
    keys += field.name() == http::field::authorization;
    origins += field.name() == http::field::origin;
    if (field.name() == http::field::transfer_encoding) {
      ++encodings;
      encoding = std::string(field.value());
    }
  }
  if (encodings > 1 || (encodings == 1 && !EqualIgnoringCase(encoding, "chunked"))) {
    return "the only Transfer-Encoding that is understood is chunked";
  }
  if (encodings == 1 && (lengths > 0 || !request_.chunks_known)) {
    return "Content-Length and Transfer-Encoding together, or chunks in HTTP/1.0";
  }
  if (lengths > 1 || (lengths == 1 && message[http::field::content_length].find(',') != std::string_view::npos)) {
    return "Content-Length is given twice";
  }
  if (hosts > 1 || (hosts == 0 && request_.chunks_known)) return "exactly one Host header is expected";
  if (keys > 1 || origins > 1) return "Authorization or Origin is given twice";
  const std::string* host = request_.Find("host");
  const std::string target = LocalTarget(std::string(message.target()), host != nullptr ? *host : "");
  if (target.empty()) return "the target of a request begins with / or with http:// and the host of the Host header";
  const size_t question = target.find('?');
  const std::optional<std::string> path = DecodePercent(target.substr(0, question));
  if (!path) return "the path has a percent sign without two hexadecimal digits";
  request_.path = *path;
  if (question != std::string::npos) request_.query = target.substr(question + 1);
  return "";
}

void Connection::OnHeader(Failure failure) {
  if (state_ == State::kCut) return;
  if (failure) return OnReadFailure(failure);
  body_left_ = !parser_->is_done();
  const std::string problem = ReadHead();
  if (!problem.empty()) return Refuse(400, problem);
  extra_ = core_->handler.ExtraHeaders(request_);
  if (std::ssize(request_.headers) > core_->options.headers) {
    return Refuse(431, fmt::format("more than {} headers", core_->options.headers));
  }
  for (const auto& header : request_.headers) {
    if (EqualIgnoringCase(header.first, "content-encoding") && !EqualIgnoringCase(header.second, "identity")) {
      return Refuse(415, "a body is taken as it is, without a Content-Encoding");
    }
  }
  const std::string* expect = request_.Find("expect");
  if (expect != nullptr && !EqualIgnoringCase(*expect, "100-continue")) {
    return Refuse(417, "the only expectation that is met is 100-continue");
  }
  if (const std::optional<HttpResponse> answer = core_->handler.Admit(request_)) {
    BeginAnswer();
    if (body_left_) keep_ = false;
    Send(serial_, *answer);
    return;
  }
  if (!body_left_) return Ready();
  if (expect == nullptr) return ReadBody();
  inflight_ = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(inflight_), [self = shared_from_this()](Failure problem2, size_t) {
    if (self->state_ == State::kCut) return;
    if (problem2) return self->Cut();
    self->ReadBody();
  });
}

// Piece by piece, to know how much is held.
void Connection::ReadBody() {
  http::async_read_some(socket_, buffer_, *parser_,
                        [self = shared_from_this()](Failure failure, size_t) { self->OnBody(failure); });
}

void Connection::OnBody(Failure failure) {
  if (state_ == State::kCut) return;
  if (failure) return OnReadFailure(failure);
  held_.Set(parser_->get().body().size());
  core_->Relieve();
  if (crowded_) return Refuse(429, kCrowded);
  if (!parser_->is_done()) return ReadBody();
  body_left_ = false;
  Ready();
}

void Connection::RefuseBody() {
  crowded_ = true;
  held_.Set(0);
  Failure ignored;
  socket_.cancel(ignored);
}

void Connection::Refuse(int status, std::string_view reason) {
  BeginAnswer();
  keep_ = false;
  body_left_ = true;  // or what else there is after the place where reading stopped
  held_.Set(0);
  parser_.reset();
  Send(serial_, core_->handler.Refuse(status, reason));
}

void Connection::BeginAnswer() {
  deadline_.cancel();
  Become(State::kAnswering);
  finished_ = false;
  ++serial_;
}

void Connection::Ready() {
  BeginAnswer();
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  const bool quick = core_->handler.IsQuick(request_);
  const bool large = request_.body.size() > kLargeBody;
  auto exchange =
      std::make_shared<ConnectionExchange>(shared_from_this(), serial_, std::move(request_), std::move(held_));
  request_ = HttpRequest{};
  Watch();
  auto answer = [core = core_, exchange = std::move(exchange), quick, large]() mutable {
    try {
      core->handler.Answer(exchange);
    } catch (const std::exception& error) {
      exchange->Send(core->handler.Refuse(500, error.what()));
    }
    exchange.reset();
    // Reading a large body leaves many times its size in small blocks, which the allocator would keep for ever.
    if (large && !quick) malloc_trim(0);
  };
  if (quick) return answer();
  asio::post(core_->workers, std::move(answer));
}

// Reads ahead while the answer is made: that is how a client that leaves is noticed. Bytes of a next request wait.
void Connection::Watch() {
  if (watching_ || buffer_.size() + kReadBytes > buffer_.max_size()) return;
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBytes), [self = shared_from_this()](Failure failure, size_t count) {
    self->watching_ = false;
    if (self->state_ == State::kCut || self->state_ == State::kLingering) return;
    if (failure && failure != asio::error::operation_aborted) return self->Cut();
    self->buffer_.commit(failure ? 0 : count);
    if (self->state_ == State::kIdle) return self->ReadRequest();
    self->Watch();
  });
}

void Connection::Send(uint64_t serial, const HttpResponse& response) {
  if (!Current(serial) || streaming_) return;
  keep_ = keep_ && !response.close && !core_->ending;
  Append(ResponseHead(response, extra_, std::ssize(response.body), false, !keep_));
  if (!head_only_ && response.status != 204 && response.status != 304) Append(response.body);
  finished_ = true;
  Flush();
}

void Connection::Start(uint64_t serial, const HttpResponse& head) {
  if (!Current(serial) || streaming_) return;
  streaming_ = true;
  keep_ = keep_ && !head.close && !core_->ending && chunks_known_;
  Append(ResponseHead(head, extra_, -1, chunks_known_, !keep_));
  if (!head.body.empty()) Write(serial, head.body);
  Flush();
}

void Connection::Write(uint64_t serial, const std::string& piece) {
  if (!Current(serial) || piece.empty() || head_only_) return;
  if (out_.size() + piece.size() > core_->options.unsent_bytes) return Cut();
  if (chunks_known_) Append(fmt::format("{:x}\r\n", piece.size()));
  Append(piece);
  if (chunks_known_) Append("\r\n");
  Flush();
}

void Connection::Finish(uint64_t serial) {
  if (!Current(serial)) return;
  if (chunks_known_) Append("0\r\n\r\n");
  finished_ = true;
  Flush();
}

void Connection::OnClosed(uint64_t serial, std::function<void()> closed) {
  if (Current(serial)) {
    on_closed_ = std::move(closed);
  } else if (state_ == State::kCut && serial == serial_) {
    closed();
  }
}

void Connection::Every(uint64_t serial, double seconds, std::function<void()> work) {
  if (!Current(serial)) return;
  tick_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(Seconds(seconds)));
  tick_.async_wait([self = shared_from_this(), serial, seconds, work = std::move(work)](Failure failure) {
    if (failure || !self->Current(serial)) return;
    work();
    self->Every(serial, seconds, work);
  });
}

void Connection::Append(std::string_view bytes) { out_ += bytes; }

void Connection::Flush() {
  if (writing_ || state_ == State::kCut) return;
  if (out_.empty()) {
    if (finished_) Complete();
    return;
  }
  writing_ = true;
  inflight_.clear();
  inflight_.swap(out_);
  sent_ = 0;
  WriteSome();
}

void Connection::WriteSome() {
  stalled_.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(Seconds(core_->options.stalled_seconds)));
  stalled_.async_wait([self = shared_from_this()](Failure failure) {
    if (!failure) self->Cut();
  });
  socket_.async_write_some(asio::buffer(inflight_) + sent_, [self = shared_from_this()](Failure failure, size_t count) {
    self->stalled_.cancel();
    if (self->state_ == State::kCut) return;
    if (failure) return self->Cut();
    self->sent_ += count;
    if (self->sent_ < self->inflight_.size()) return self->WriteSome();
    self->writing_ = false;
    self->Flush();
  });
}

void Connection::Complete() {
  on_closed_ = nullptr;
  tick_.cancel();
  streaming_ = false;
  if (!keep_ || core_->closing) {
    if (!body_left_ && buffer_.size() == 0) return Cut();  // nothing that the client sent is left unread
    Become(State::kLingering);
    Failure ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    socket_.cancel(ignored);
    SetDeadline(kLingerSeconds);
    return Linger(kLingerBytes);
  }
  if (!watching_) return ReadRequest();
  Become(State::kIdle);
  if (buffer_.size() > 0) {
    Failure ignored;
    socket_.cancel(ignored);  // the next request is here already; Watch goes on to read it
    return;
  }
  SetDeadline(core_->options.idle_seconds);
}

// Closing at once would make the system throw away the answer if the client is still sending.
void Connection::Linger(size_t left) {
  if (state_ == State::kCut) return;
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this(), left](Failure failure, size_t count) {
                            if ((failure && failure != asio::error::operation_aborted) || count > left)
                              return self->Cut();
                            self->Linger(left - count);
                          });
}

void Connection::Cut() {
  if (state_ == State::kCut) return;
  Become(State::kCut);
  Failure ignored;
  socket_.close(ignored);
  deadline_.cancel();
  stalled_.cancel();
  tick_.cancel();
  held_.Set(0);
  const std::shared_ptr<Connection> self = shared_from_this();
  if (on_closed_) {
    const std::function<void()> closed = std::move(on_closed_);
    on_closed_ = nullptr;
    closed();
  }
  core_->Remove(this);
}

void HttpServer::Core::OpenListener() {
  const Listener listener = Listen(options.host, options.port);
  acceptor.assign(asio::generic::stream_protocol(listener.family, listener.family == AF_UNIX ? 0 : IPPROTO_TCP),
                  listener.descriptor);
  bound_port = listener.port;
}

void HttpServer::Core::Accept() {
  acceptor.async_accept([self = shared_from_this()](Failure failure, Socket socket) {
    if (failure == asio::error::operation_aborted || self->closing) return;
    if (!failure) {
      self->Accepted(std::move(socket));
      return self->Accept();
    }
    // Out of descriptors or memory: others may end soon.
    self->accept_timer.expires_after(std::chrono::milliseconds(100));
    self->accept_timer.async_wait([self](Failure stopped) {
      if (!stopped && !self->closing) self->Accept();
    });
  });
}

bool HttpServer::Core::HasRoom(const std::string& peer) const {
  const int most = IsLoopback(peer) ? options.connections_from_loopback : options.connections_per_address;
  const auto known = per_address.find(peer);
  return std::ssize(connections) < options.connections && (known == per_address.end() || known->second < most);
}

// The address that has most clients without a whole request gives first, and of those the one that has been so for
// longest. Somebody who has no more than the newcomer is given time to send his.
bool HttpServer::Core::MakeRoom(const std::string& peer) {
  const AskingClients<Connection>::Group own = asking.Of(peer);
  // With room left in all it is only this address that has too many.
  const auto most = std::ssize(connections) >= options.connections ? asking.Largest() : own;
  if (most.oldest == nullptr) return false;
  const bool greedy = most.count > own.count + 1;
  const double age = Seconds(std::chrono::steady_clock::now() - most.oldest->since()).count();
  if (!greedy && age < options.patience_seconds) return false;
  most.oldest->Cut();
  return HasRoom(peer);
}

// Bodies that are being sent share a bound; over it the largest of them goes.
void HttpServer::Core::Relieve() {
  while (held_bytes > options.held_bytes) {
    Connection* largest = nullptr;
    for (Connection* one : connections) {
      if (one->asks() && (largest == nullptr || one->body_bytes() > largest->body_bytes())) largest = one;
    }
    if (largest == nullptr || largest->body_bytes() == 0) return;
    largest->RefuseBody();
  }
}

void HttpServer::Core::Accepted(Socket socket) {
  Failure failure;
  const auto remote = socket.remote_endpoint(failure);
  if (failure) return;
  const std::string peer = AddressOf(remote.data());
  if (peer != "unix") {
    const int on = 1;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  if (!HasRoom(peer) && !MakeRoom(peer)) {
    const HttpResponse response = handler.Refuse(429, "too many connections");
    const std::string answer = ResponseHead(response, {}, std::ssize(response.body), false, true) + response.body;
    socket.non_blocking(true, failure);
    socket.write_some(asio::buffer(answer), failure);
    return;
  }
  const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket), peer);
  connections.insert(connection.get());
  ++per_address[peer];
  connection_count = std::ssize(connections);
  connection->ReadRequest();
}

void HttpServer::Core::Remove(Connection* connection) {
  if (connections.erase(connection) == 0) return;
  const auto at = per_address.find(connection->peer());
  if (--at->second == 0) per_address.erase(at);
  connection_count = std::ssize(connections);
  EndIfEmpty();
}

void HttpServer::Core::EndIfEmpty() {
  if (closing && connections.empty()) io.stop();
}

void HttpServer::Core::WaitForSignal() {
  signals.async_wait([self = shared_from_this()](Failure failure, int) {
    if (failure) return;
    self->on_signal(++self->signal_count);
    self->WaitForSignal();
  });
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler& handler)
    : core_(std::make_shared<Core>(options, handler)) {
  core_->OpenListener();
  core_->Accept();
}

HttpServer::~HttpServer() {
  core_->workers.stop();
  core_->workers.join();
  {
    const std::lock_guard lock(core_->post_mutex);
    core_->ended = true;
  }
  Failure ignored;
  core_->closing = true;
  core_->acceptor.close(ignored);
  core_->accept_timer.cancel();
  core_->signals.cancel(ignored);
  const std::set<Connection*> open = core_->connections;
  for (Connection* connection : open) connection->Cut();
  // What is pending holds connections, which hold the queue it is pending in: run it to let go.
  core_->io.restart();
  core_->io.poll();
  if (IsSocketPath(core_->options.host)) ::unlink(core_->options.host.c_str());
}

int HttpServer::port() const { return core_->bound_port; }

std::string HttpServer::url() const {
  const std::string& host = core_->options.host;
  if (IsSocketPath(host)) return "unix:" + host;
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port());
}

int64_t HttpServer::connections() const { return core_->connection_count; }

void HttpServer::Run() { core_->io.run(); }

void HttpServer::EndWithNextAnswers() { core_->ending = true; }

void HttpServer::Close() {
  core_->PostWork([core = core_] {
    Failure ignored;
    core->closing = true;
    core->acceptor.close(ignored);
    const std::set<Connection*> open = core->connections;
    for (Connection* connection : open) connection->EndSoon();
    core->EndIfEmpty();
  });
}

void HttpServer::Stop() {
  core_->PostWork([core = core_] {
    Failure ignored;
    core->closing = true;
    core->acceptor.close(ignored);
    const std::set<Connection*> open = core->connections;
    for (Connection* connection : open) connection->Cut();
    core->io.stop();
  });
}

void HttpServer::OnSignal(std::function<void(int)> received) {
  core_->PostWork([core = core_, received = std::move(received)] {
    core->on_signal = received;
    core->signals.add(SIGINT);
    core->signals.add(SIGTERM);
    core->WaitForSignal();
  });
}

void HttpServer::Post(std::function<void()> work) { core_->PostWork(std::move(work)); }

bool IsLocalHost(const std::string& host) { return IsSocketPath(host) || host == "localhost" || IsLoopback(host); }

}  // namespace octavo::server
