// Reads deliveries as JSON from standard input, verifies each with npm's standardwebhooks, and signs each anew; writes
// what it found as JSON. The signed time of a delivery must be about now: the library reads its own clock.
const { Webhook } = require("standardwebhooks");

const found = JSON.parse(require("node:fs").readFileSync(0, "utf8")).map(({ secret, headers, body }) => {
  const webhook = new Webhook(secret);
  const at = new Date(Number(headers["webhook-timestamp"]) * 1000);
  const signature = webhook.sign(headers["webhook-id"], at, body);
  try {
    webhook.verify(body, headers);
    return { verified: true, signature };
  } catch (error) {
    return { verified: false, signature, error: String(error) };
  }
});
process.stdout.write(JSON.stringify(found));
