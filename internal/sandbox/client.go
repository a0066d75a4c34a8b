package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxControlAnswer bounds what the client reads of one answer, in bytes.
const maxControlAnswer = 1 << 30

// Client makes the control calls of a sandbox: what tests, the demo and the
// auditor use. It never charges as a merchant does. Every method fails when the sandbox cannot be
// reached, refuses, or ctx ends.
type Client struct {
	// Base is the sandbox's address, as Server.URL returns it.
	Base string
	// HTTP is the client to use; nil means http.DefaultClient.
	HTTP *http.Client
}

// Register returns every movement of money there ever was.
func (c *Client) Register(ctx context.Context) ([]Movement, error) {
	var answer registerAnswer
	err := c.call(ctx, http.MethodGet, "/register", nil, &answer)
	return answer.Movements, err
}

// WaitMovements returns the register once it has n movements or more. It ends
// with ctx only.
func (c *Client) WaitMovements(ctx context.Context, n int) ([]Movement, error) {
	path := fmt.Sprintf("/register?at_least=%d&wait_ms=%d", n, maxPoll/time.Millisecond)
	for {
		var answer registerAnswer
		if err := c.call(ctx, http.MethodGet, path, nil, &answer); err != nil {
			return nil, fmt.Errorf("wait for %d movements: %w", n, err)
		}
		if len(answer.Movements) >= n {
			return answer.Movements, nil
		}
	}
}

// Wire returns the requests received after the one with number after, in order.
func (c *Client) Wire(ctx context.Context, after int64) ([]WireEntry, error) {
	var answer wireAnswer
	err := c.call(ctx, http.MethodGet, "/wire?after="+strconv.FormatInt(after, 10), nil, &answer)
	return answer.Requests, err
}

// Contract returns the contract in force.
func (c *Client) Contract(ctx context.Context) (Contract, error) {
	var answer Contract
	err := c.call(ctx, http.MethodGet, "/control/contract", nil, &answer)
	return answer, err
}

// SetContract replaces the contract for requests from now on.
func (c *Client) SetContract(ctx context.Context, terms Contract) error {
	return c.call(ctx, http.MethodPut, "/control/contract", terms, nil)
}

// SetFaults replaces the fault plan; no rules means no faults. A seed of 0
// keeps the configured one.
func (c *Client) SetFaults(ctx context.Context, seed int64, rules ...Rule) error {
	return c.call(ctx, http.MethodPut, "/control/faults", FaultPlan{Seed: seed, Rules: append([]Rule{}, rules...)}, nil)
}

// Clock returns the sandbox's time and its offset.
func (c *Client) Clock(ctx context.Context) (ClockState, error) {
	var answer ClockState
	err := c.call(ctx, http.MethodGet, "/control/clock", nil, &answer)
	return answer, err
}

// Advance moves the sandbox's clock, whole milliseconds; whoever waits inside
// for a time that is now past goes on.
func (c *Client) Advance(ctx context.Context, by time.Duration) error {
	return c.call(ctx, http.MethodPut, "/control/clock", map[string]int64{"advance_ms": by.Milliseconds()}, nil)
}

// SetOffset sets the distance of the sandbox's clock from real time.
func (c *Client) SetOffset(ctx context.Context, offset time.Duration) error {
	return c.call(ctx, http.MethodPut, "/control/clock", map[string]int64{"offset_ms": offset.Milliseconds()}, nil)
}

// Release lets the n requests that wait longest at the gate go, all for n = 0,
// and returns how many went.
func (c *Client) Release(ctx context.Context, gate string, n int) (int, error) {
	var answer releaseAnswer
	path := "/control/release/" + url.PathEscape(gate) + "?n=" + strconv.Itoa(n)
	err := c.call(ctx, http.MethodPost, path, nil, &answer)
	return answer.Released, err
}

// Waiting returns how many requests wait at each gate.
func (c *Client) Waiting(ctx context.Context) (map[string]int, error) {
	var answer waitingAnswer
	err := c.call(ctx, http.MethodGet, "/control/waiting", nil, &answer)
	return answer.Gates, err
}

// WaitWaiting returns once n requests or more wait at the gate. It ends with
// ctx only.
func (c *Client) WaitWaiting(ctx context.Context, gate string, n int) error {
	path := fmt.Sprintf("/control/waiting?gate=%s&at_least=%d&wait_ms=%d", url.QueryEscape(gate), n, maxPoll/time.Millisecond)
	for {
		var answer waitingAnswer
		if err := c.call(ctx, http.MethodGet, path, nil, &answer); err != nil {
			return fmt.Errorf("wait for %d at gate %s: %w", n, gate, err)
		}
		if answer.Reached {
			return nil
		}
	}
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("sandbox control: encode: %w", err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Base, "/")+path, body)
	if err != nil {
		return fmt.Errorf("sandbox control: %w", err)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("sandbox control: %w", err)
	}
	data, err := readAll(answer.Body)
	if err != nil {
		return fmt.Errorf("sandbox control: read the answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("sandbox control: %s %s: status %d: %.200s", method, path, answer.StatusCode, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("sandbox control: decode the answer: %w", err)
	}
	return nil
}

func readAll(body io.ReadCloser) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxControlAnswer))
	if cerr := body.Close(); err == nil {
		err = cerr
	}
	return data, err
}
