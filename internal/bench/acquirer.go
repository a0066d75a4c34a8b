package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
)

// instant is an acquirer that takes every charge at once and remembers nothing: what is measured is Hapax, and not the disk of
// an acquirer. It speaks the sandbox's language.
type instant struct {
	url    string
	server *http.Server
	served chan error
	count  atomic.Int64
}

func startInstant() (*instant, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &instant{url: "http://" + l.Addr().String(), served: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", a.charge)
	a.server = &http.Server{Handler: mux}
	go func() { a.served <- a.server.Serve(l) }()
	return a, nil
}

func (a *instant) charge(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Reference string `json:"reference"`
		Amount    int64  `json:"amount"`
		Currency  string `json:"currency"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"ch_%d","reference":%q,"status":"succeeded","amount":%d,"currency":%q}`,
		a.count.Add(1), asked.Reference, asked.Amount, asked.Currency)
}

func (a *instant) close() error {
	err := a.server.Close()
	if served := <-a.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
