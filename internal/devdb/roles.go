package devdb

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// rolesLock serialises the making of roles, which are shared by a whole
// cluster: concurrent CREATE ROLE of several test processes would collide.
const rolesLock = 0x6861706178 // "hapax"

// scramIterations is PostgreSQL's own number.
const scramIterations = 4096

// RolePassword derives a role's password from the superuser's, so that one
// secret gives every connection string. Both are hexadecimal.
func RolePassword(superuserPassword, role string) string {
	mac := hmac.New(sha256.New, []byte(superuserPassword))
	mac.Write([]byte(role)) // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// RoleURL turns the superuser's connection string into that of a role and
// database, with the role's derived password. An empty role keeps the superuser.
func RoleURL(superuserURL, role, db string) (string, error) {
	u, err := url.Parse(superuserURL)
	if err != nil {
		// The parser quotes its input, which holds a password.
		return "", errors.New("the database URL cannot be read")
	}
	if role != "" {
		password, _ := u.User.Password()
		u.User = url.UserPassword(role, RolePassword(password, role))
	}
	u.Path = "/" + db
	return u.String(), nil
}

func connURL(role, password string, port int, db string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/" + db,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// EnsureRoles makes the owner, service and console roles with their derived
// passwords, and the database hapax of the owner, where they are missing.
// superuserURL names a superuser. Repeating it changes nothing.
func EnsureRoles(ctx context.Context, superuserURL string) (err error) {
	cfg, err := pgx.ParseConfig(superuserURL)
	if err != nil {
		return errors.New("the database URL cannot be read")
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	// The lock ends with the connection.
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(rolesLock)); err != nil {
		return err
	}
	for _, role := range []string{RoleOwner, RoleService, RoleConsole} {
		if err := ensureRole(ctx, conn, role, RolePassword(cfg.Password, role)); err != nil {
			return err
		}
	}
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", Database).Scan(&exists); err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+Database+" OWNER "+RoleOwner)
	return err
}

func ensureRole(ctx context.Context, conn *pgx.Conn, role, password string) error {
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&exists); err != nil {
		return err
	}
	if exists && roleWorks(ctx, conn, role, password) {
		return nil
	}
	verb := "CREATE"
	if exists {
		verb = "ALTER"
	}
	verifier, err := scramVerifier(password)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("%s ROLE %s LOGIN PASSWORD '%s'", verb, pgx.Identifier{role}.Sanitize(), verifier))
	return err
}

// roleWorks tries the password, so that a role that exists is left untouched.
func roleWorks(ctx context.Context, conn *pgx.Conn, role, password string) bool {
	cfg := conn.Config().Copy()
	cfg.User, cfg.Password = role, password
	own, err := pgx.ConnectConfig(ctx, cfg)
	return err == nil && own.Close(ctx) == nil
}

// scramVerifier is what PostgreSQL stores for a password (RFC 5802). Sending it
// instead of the password keeps the password out of the server's log.
func scramVerifier(password string) (string, error) {
	salt := make([]byte, 16)
	rand.Read(salt) // never fails: the runtime ends the process instead
	salted, err := pbkdf2.Key(sha256.New, password, salt, scramIterations, sha256.Size)
	if err != nil {
		return "", err
	}
	sum := func(label string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(label))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sum("Client Key"))
	enc := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramIterations, enc(salt), enc(stored[:]), enc(sum("Server Key"))), nil
}
