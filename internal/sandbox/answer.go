package sandbox

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// silentCap bounds, in real time, how long a client without an answer is kept.
const silentCap = 2 * time.Minute

// reply is a whole answer.
type reply struct {
	status      int
	contentType string
	header      http.Header
	body        []byte
}

// Answers that faults give.
var (
	internalError = jsonError(http.StatusInternalServerError, "internal", "an internal error")
	inFlight      = jsonError(http.StatusConflict, "in_flight", "the same request is being worked on")
	notFound      = jsonError(http.StatusNotFound, "not_found", "nothing such is known")
	unavailable   = jsonError(http.StatusServiceUnavailable, "unavailable", "not available now")
	errorWith200  = jsonError(http.StatusOK, "internal", "an error in a good answer")
	brokenJSON    = &reply{status: http.StatusOK, contentType: "application/json", body: []byte(`{"id":"ch_`)}
	badGateway    = &reply{status: http.StatusBadGateway, contentType: "text/html",
		body: []byte("<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n")}
)

func jsonError(status int, code, message string) *reply {
	type detail struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	return jsonReply(status, map[string]detail{"error": {code, message}})
}

func jsonReply(status int, value any) *reply {
	body, err := json.Marshal(value)
	if err != nil {
		// Every value is one of our own structs of strings, integers and times.
		panic("sandbox: an answer that JSON cannot hold: " + err.Error())
	}
	return &reply{status: status, contentType: "application/json", body: append(body, '\n')}
}

func withHeader(r *reply, name, value string) *reply {
	r.header = http.Header{name: {value}}
	return r
}

// backTo leads a redirect of the front layer back to the call that met it.
func (r *reply) backTo(path string) *reply {
	if r.status != http.StatusTemporaryRedirect {
		return r
	}
	again := *r
	again.header = http.Header{"Location": {path}}
	return &again
}

// send writes the answer. A client that is gone is no error of ours: what was
// booked is booked.
func (r *reply) send(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	if r.contentType != "" {
		w.Header().Set("Content-Type", r.contentType)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	w.WriteHeader(r.status)
	if _, err := w.Write(r.body); err != nil {
		abort(w)
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	jsonError(status, code, message).send(w)
}

// deliver lets the answer travel back the way the play says.
func (s *Server) deliver(w http.ResponseWriter, r *request, p play, answer *reply) {
	switch {
	case p.way == silent:
		if s.gates.wait(silentGate, silentCap, s.stop, r.Context().Done()) {
			answer.send(w)
			return
		}
		abort(w)
	case p.way == reset:
		abort(w)
	case p.way == dropKept:
		drop(w)
	default:
		answer.send(w)
	}
}

// abort resets the connection: the client sees no answer and no orderly end.
func abort(w http.ResponseWriter) {
	conn := hijack(w)
	if tcp, ok := conn.(*net.TCPConn); ok {
		end(conn, tcp.SetLinger(0)) // without it, close sends an orderly end
		return
	}
	end(conn, nil)
}

// drop closes the connection in order, but without an answer, as a server does
// whose keep-alive time is over just as a request comes in.
func drop(w http.ResponseWriter) { end(hijack(w), nil) }

func hijack(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		// Hijacked before, or half an answer is out: the server cuts it.
		panic(http.ErrAbortHandler)
	}
	return conn
}

// end closes the connection. Errors are told to the server, which cuts what is
// left; the other side may have gone before us.
func end(conn net.Conn, earlier error) {
	if err := errors.Join(earlier, conn.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		panic(http.ErrAbortHandler)
	}
}
