package textbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// The hosted flow as an article about its three races has it in the end: claim, then register, with a lock for the decision and a
// partial index under it; ask, then apply under row locks, by an update that says whether it moved anything, with one receipt;
// the code and the state are taken before the acquirer is called.

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

func (s *Service) hostedRoutes(mux *http.ServeMux) {
	for path, do := range map[string]func(context.Context, hostedRequest) (answer, error){
		"POST /sessions": s.createSession, "POST /check": s.checkSession, "POST /cancel": s.cancelSession,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var req hostedRequest
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
				s.refuse(w, http.StatusBadRequest, "malformed")
				return
			}
			a, err := do(context.WithoutCancel(r.Context()), req)
			if err != nil {
				s.cfg.Logger.Error("hosted flow failed", "order_id", req.OrderID, "error", err)
				s.refuse(w, http.StatusInternalServerError, "internal")
				return
			}
			s.write(w, a)
		})
	}
}

func hostedAnswer(code int, status, page string) answer {
	return answer{status: code, body: json.RawMessage(fmt.Sprintf(`{"status":%q,"page_url":%q}`, status, page))}
}

func (s *Service) createSession(ctx context.Context, req hostedRequest) (answer, error) {
	var claimed int64
	var status, page string
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		claimed = 0
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, req.OrderID); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `SELECT status, COALESCE(page_url, '') FROM textbook.sessions WHERE order_id = $1 AND status <> 'CANCELED'`,
			req.OrderID).Scan(&status, &page)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if req.Code != "" {
			if _, err := tx.Exec(ctx, `INSERT INTO textbook.codes (order_id, code) VALUES ($1, $2)`, req.OrderID, req.Code); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, `INSERT INTO textbook.sessions (order_id, status) VALUES ($1, 'REGISTERING') RETURNING id`, req.OrderID).Scan(&claimed)
	})
	switch {
	case err != nil:
		return answer{}, err
	case claimed == 0 && page == "":
		return hostedAnswer(http.StatusAccepted, status, ""), nil
	case claimed == 0:
		return hostedAnswer(http.StatusOK, status, page), nil
	}
	var made struct {
		ID      string `json:"id"`
		PageURL string `json:"page_url"`
	}
	if err := s.acquirer.json(ctx, http.MethodPost, "/sessions", "session:"+strconv.FormatInt(claimed, 10), map[string]any{
		"reference": "order-" + strconv.FormatInt(req.OrderID, 10), "amount": req.Amount, "currency": req.Currency,
		"return_url": req.ReturnURL, "capture": !req.Hold}, &made); err != nil {
		return answer{}, err
	}
	_, err = s.pool.Exec(ctx, `UPDATE textbook.sessions SET session_id = $2, page_url = $3, status = 'REGISTERED' WHERE id = $1 AND status = 'REGISTERING'`,
		claimed, made.ID, made.PageURL)
	return hostedAnswer(http.StatusCreated, "REGISTERED", made.PageURL), err
}

func (s *Service) checkSession(ctx context.Context, req hostedRequest) (answer, error) {
	var session string
	err := s.pool.QueryRow(ctx, `SELECT session_id FROM textbook.sessions WHERE order_id = $1 AND status = 'REGISTERED'`, req.OrderID).Scan(&session)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.sessionStatus(ctx, req.OrderID)
	}
	if err != nil {
		return answer{}, err
	}
	var now struct {
		Status string `json:"status"`
		Charge struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"charge"`
	}
	if err := s.acquirer.json(ctx, http.MethodGet, "/sessions/"+session, "", nil, &now); err != nil {
		return answer{}, err
	}
	if now.Status == "paid" {
		if err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			return applySession(ctx, tx, req.OrderID, session, now.Charge.ID, now.Charge.Status)
		}); err != nil {
			return answer{}, err
		}
	}
	return s.sessionStatus(ctx, req.OrderID)
}

// applySession applies a success once: who finds the session moved on changes nothing. Money that is held is no receipt.
func applySession(ctx context.Context, tx pgx.Tx, order int64, session, charge, chargeStatus string) error {
	status := "COMPLETED"
	if chargeStatus == "held" {
		status = "AUTHORIZED"
	}
	if _, err := tx.Exec(ctx, `SELECT id FROM textbook.sessions WHERE order_id = $1 AND session_id = $2 FOR UPDATE`, order, session); err != nil {
		return err
	}
	moved, err := tx.Exec(ctx, `UPDATE textbook.sessions SET status = $3, charge_id = $2 WHERE session_id = $1 AND status = 'REGISTERED'`, session, charge, status)
	if err != nil || moved.RowsAffected() == 0 || status == "AUTHORIZED" {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO textbook.receipts (order_id, kind) VALUES ($1, 'PaymentReceived')`, order)
	return err
}

func (s *Service) cancelSession(ctx context.Context, req hostedRequest) (answer, error) {
	var charge string
	var id int64
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `UPDATE textbook.codes SET used = true WHERE order_id = $1 AND code = $2 AND NOT used RETURNING order_id`,
			req.OrderID, req.Code).Scan(new(int64)); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `UPDATE textbook.sessions SET status = 'CANCELING' WHERE order_id = $1 AND status = 'AUTHORIZED' RETURNING id, charge_id`,
			req.OrderID).Scan(&id, &charge)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return s.sessionStatus(ctx, req.OrderID)
	}
	if err != nil {
		return answer{}, err
	}
	key := "reverse:" + strconv.FormatInt(id, 10)
	if err := s.acquirer.json(ctx, http.MethodPost, "/charges/"+charge+"/reverse", key, map[string]any{"reference": key}, nil); err != nil {
		return answer{}, err
	}
	_, err = s.pool.Exec(ctx, `UPDATE textbook.sessions SET status = 'CANCELED' WHERE id = $1`, id)
	return hostedAnswer(http.StatusOK, "CANCELED", ""), err
}

func (s *Service) sessionStatus(ctx context.Context, order int64) (answer, error) {
	status, _, err := s.Hosted(ctx, order)
	return hostedAnswer(http.StatusOK, status, ""), err
}

// Hosted reads what the service believes about an order of the hosted flow: the status of its last page, empty where it has
// none, and how many receipts were booked.
func (s *Service) Hosted(ctx context.Context, order int64) (status string, receipts int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT status, (SELECT count(*) FROM textbook.receipts r WHERE r.order_id = $1)
		FROM textbook.sessions WHERE order_id = $1 ORDER BY id DESC LIMIT 1`, order).Scan(&status, &receipts)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", 0, nil
	}
	return status, receipts, err
}

// json makes one call and reads the answer into out where that is not nil.
func (a acquirer) json(ctx context.Context, method, path, key string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	status, raw, err := a.do(ctx, method, path, key, body)
	if err != nil {
		return err
	}
	if status >= http.StatusBadRequest {
		return fmt.Errorf("%w: answered %d", errAcquirer, status)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// The figures of the article's sweep.
const (
	sweepBatch = 20
	sweepLease = 30 * time.Second
)

// SweepSessions makes one pass over the pages that nobody asks about. Replicas share them by SKIP LOCKED and a lease.
func (s *Service) SweepSessions(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, `
		WITH picked AS (
		    SELECT id FROM textbook.sessions
		     WHERE status = 'REGISTERED' AND (lease_until IS NULL OR lease_until < now())
		     ORDER BY id
		       FOR UPDATE SKIP LOCKED
		     LIMIT $1)
		UPDATE textbook.sessions p SET lease_until = now() + make_interval(secs => $2)
		  FROM picked WHERE p.id = picked.id
		RETURNING p.order_id`, sweepBatch, s.scaled(sweepLease).Seconds())
	if err != nil {
		return err
	}
	orders, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	for _, order := range orders {
		_, failed := s.checkSession(ctx, hostedRequest{OrderID: order})
		err = errors.Join(err, failed)
	}
	return err
}
