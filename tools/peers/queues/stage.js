// What all peers share: the jobs, the request to the pretend bank, and the talk with the bench that starts them.
//
// node PEER.js ADDRESS BANK_URL IN_FLIGHT SAVE
// Saves that many jobs, says "saved MILLISECONDS", waits for "go", works. It ends when its standard input does.

import { createInterface } from "node:readline";
import { Pool } from "undici";

const [address, bankUrl, inFlight, save] = process.argv.slice(2);
export { address };
export const concurrency = Number(inFlight);

const bank = new URL(bankUrl);
const pool = new Pool(bank.origin, { connections: concurrency, pipelining: 1 });

export async function post(refund) {
  const answer = await pool.request({
    path: bank.pathname,
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": key(refund), "refundd-attempt": "1" },
    body: JSON.stringify(refund),
  });
  await answer.body.dump();
  if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
}

function key(refund) {
  return `00000000-0000-4000-8000-${String(refund.refund_id).padStart(12, "0")}`;
}

// What refundd sends of a refund.
function refund(n) {
  return {
    refund_id: n,
    refund_ref: `R-${n}`,
    channel: "acme",
    payment_ref: `P-${n}`,
    amount_minor: n,
    currency: "EUR",
    requested_at: "2026-01-01T00:00:00.000000Z",
  };
}

// `add` takes many refunds at once; `work` begins to work and answers how to stop.
export async function play({ prepare, most, add, work }) {
  await prepare?.();
  const refunds = Array.from({ length: Number(save) }, (_, n) => refund(n + 1));
  const began = performance.now();
  for (let from = 0; from < refunds.length; from += most) await add(refunds.slice(from, from + most));
  console.log(`saved ${performance.now() - began}`);
  let stop;
  for await (const line of createInterface({ input: process.stdin })) if (line === "go") stop = await work();
  await stop?.();
  process.exit(0);
}
