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
