package naive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// The hosted flow as it came out of the monolith: look, then register; ask, then book; check the code, reverse, then use it up.
// In one process behind one lock it lived somehow; here it runs in several replicas, and nothing else guards it.

// hostedRequest is the body of the three calls; each reads what it needs.
type hostedRequest struct {
	OrderID  int64  `json:"order_id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	// ReturnURL is where the payer goes after the page.
	ReturnURL string `json:"return_url"`
	Hold      bool   `json:"hold"`
	// Code is the one-time code of a later cancel: on create the one that the payer was sent.
	Code string `json:"code"`
}

// hostedAnswer is what each of them answers.
type hostedAnswer struct {
	Status  string `json:"status"`
	PageURL string `json:"page_url,omitempty"`
}

func (s *Service) hostedRoutes(mux *http.ServeMux) {
	for path, do := range map[string]func(context.Context, hostedRequest) (hostedAnswer, error){
		"POST /sessions": s.createSession, "POST /check": s.checkSession, "POST /cancel": s.cancelSession,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var req hostedRequest
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
				s.write(w, http.StatusBadRequest, map[string]string{"error": "the body cannot be read"})
				return
			}
			a, err := do(context.WithoutCancel(r.Context()), req)
			if err != nil {
				s.cfg.Logger.Error("hosted flow failed", "order_id", req.OrderID, "error", err)
				s.write(w, http.StatusInternalServerError, map[string]string{"error": "failed"})
				return
			}
			s.write(w, http.StatusOK, a)
		})
	}
}

func (s *Service) createSession(ctx context.Context, req hostedRequest) (hostedAnswer, error) {
	var page string
	err := s.pool.QueryRow(ctx, `SELECT page_url FROM naive.sessions WHERE order_id = $1 AND status <> 'CANCELED' LIMIT 1`, req.OrderID).Scan(&page)
	if err == nil {
		return hostedAnswer{"REGISTERED", page}, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return hostedAnswer{}, err
	}
	var made struct {
		ID      string `json:"id"`
		PageURL string `json:"page_url"`
	}
	if err := s.acquirer.json(ctx, http.MethodPost, "/sessions", map[string]any{"reference": strconv.FormatInt(req.OrderID, 10), "amount": req.Amount,
		"currency": req.Currency, "return_url": req.ReturnURL, "capture": !req.Hold}, &made); err != nil {
		return hostedAnswer{}, err
	}
	_, err = s.pool.Exec(ctx, `INSERT INTO naive.sessions (order_id, session_id, page_url, status) VALUES ($1, $2, $3, 'REGISTERED')`,
		req.OrderID, made.ID, made.PageURL)
	if err == nil && req.Code != "" {
		_, err = s.pool.Exec(ctx, `INSERT INTO naive.codes (order_id, code) VALUES ($1, $2)`, req.OrderID, req.Code)
	}
	return hostedAnswer{"REGISTERED", made.PageURL}, err
}

func (s *Service) checkSession(ctx context.Context, req hostedRequest) (hostedAnswer, error) {
	rows, err := s.pool.Query(ctx, `SELECT session_id FROM naive.sessions WHERE order_id = $1 AND status = 'REGISTERED'`, req.OrderID)
	if err != nil {
		return hostedAnswer{}, err
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return hostedAnswer{}, err
	}
	for _, session := range open {
		var now struct {
			Status string `json:"status"`
			Charge struct {
				ID     string `json:"id"`
				Status string `json:"status"`
			} `json:"charge"`
		}
		if err := s.acquirer.json(ctx, http.MethodGet, "/sessions/"+session, nil, &now); err != nil {
			return hostedAnswer{}, err
		}
		if now.Status != "paid" {
			continue
		}
		status := "AUTHORIZED"
		if now.Charge.Status != "held" {
			status = "COMPLETED"
			if _, err := s.pool.Exec(ctx, `INSERT INTO naive.receipts (order_id, session_id) VALUES ($1, $2)`, req.OrderID, session); err != nil {
				return hostedAnswer{}, err
			}
		}
		if _, err := s.pool.Exec(ctx, `UPDATE naive.sessions SET status = $3, charge_id = $2 WHERE session_id = $1`, session, now.Charge.ID, status); err != nil {
			return hostedAnswer{}, err
		}
	}
	return s.sessionStatus(ctx, req.OrderID)
}

func (s *Service) cancelSession(ctx context.Context, req hostedRequest) (hostedAnswer, error) {
	var charge string
	if err := s.pool.QueryRow(ctx, `SELECT s.charge_id FROM naive.sessions s JOIN naive.codes c ON c.order_id = s.order_id AND c.code = $2 AND NOT c.used
		WHERE s.order_id = $1 AND s.charge_id IS NOT NULL LIMIT 1`, req.OrderID, req.Code).Scan(&charge); err != nil {
		return hostedAnswer{}, fmt.Errorf("the code: %w", err)
	}
	failed := s.acquirer.json(ctx, http.MethodPost, "/charges/"+charge+"/reverse", map[string]any{"reference": strconv.FormatInt(req.OrderID, 10)}, nil)
	if failed != nil {
		return hostedAnswer{}, failed
	}
	if _, err := s.pool.Exec(ctx, `UPDATE naive.codes SET used = true WHERE order_id = $1 AND code = $2`, req.OrderID, req.Code); err != nil {
		return hostedAnswer{}, err
	}
	_, err := s.pool.Exec(ctx, `UPDATE naive.sessions SET status = 'CANCELED' WHERE order_id = $1`, req.OrderID)
	return hostedAnswer{Status: "CANCELED"}, err
}

func (s *Service) sessionStatus(ctx context.Context, order int64) (a hostedAnswer, err error) {
	err = s.pool.QueryRow(ctx, `SELECT status FROM naive.sessions WHERE order_id = $1 ORDER BY id DESC LIMIT 1`, order).Scan(&a.Status)
	return a, err
}

// Hosted reads what the service believes about an order of the hosted flow: the status of its last page, empty where it has
// none, and how many receipts were booked.
func (s *Service) Hosted(ctx context.Context, order int64) (status string, receipts int, err error) {
	a, err := s.sessionStatus(ctx, order)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", 0, nil
	}
	if err == nil {
		err = s.pool.QueryRow(ctx, `SELECT count(*) FROM naive.receipts WHERE order_id = $1`, order).Scan(&receipts)
	}
	return a.Status, receipts, err
}

// json makes one call without a key, and reads the answer into out where that is not nil.
func (a acquirer) json(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	call, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	call.Header.Set("Content-Type", "application/json")
	call.Header.Set("Authorization", "Bearer "+a.secret)
	res, err := a.http.Do(call)
	if err != nil {
		return &transportError{err}
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("acquirer answered %d", res.StatusCode)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}
