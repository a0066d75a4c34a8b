-- The table of the service of the incidents: no constraint says that an order is paid once.
CREATE SCHEMA IF NOT EXISTS naive;

CREATE TABLE IF NOT EXISTS naive.payments (
    id             BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id       BIGINT      NOT NULL,
    amount_minor   BIGINT      NOT NULL,
    currency       CHAR(3)     NOT NULL,
    status         VARCHAR(20) NOT NULL,            -- PENDING | PAID
    transaction_id VARCHAR(64),
    created_at     TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- The hosted flow: nothing says that an order has one page, one receipt, or one use of a code.
CREATE TABLE IF NOT EXISTS naive.sessions (
    id         BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id   BIGINT      NOT NULL,
    session_id VARCHAR(64) NOT NULL,
    page_url   TEXT        NOT NULL,
    status     VARCHAR(20) NOT NULL,            -- REGISTERED | AUTHORIZED | COMPLETED | CANCELED
    charge_id  VARCHAR(64)
);
CREATE TABLE IF NOT EXISTS naive.receipts (
    id         BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id   BIGINT      NOT NULL,
    session_id VARCHAR(64) NOT NULL
);
CREATE TABLE IF NOT EXISTS naive.codes (
    order_id BIGINT      NOT NULL,
    code     VARCHAR(20) NOT NULL,
    used     BOOLEAN     NOT NULL DEFAULT false
);
