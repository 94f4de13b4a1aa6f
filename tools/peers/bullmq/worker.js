// One worker process of the peer: takes jobs under BullMQ's own limiter and POSTs each to the pretend bank.
//
// node worker.js REDIS_PORT BANK_URL MAX CONCURRENCY
// It ends when its standard input does, so that it never outlives the measurement that started it.

import http from "node:http";
import { Worker } from "bullmq";

const [redisPort, bankUrl, max, concurrency] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: Number(concurrency), noDelay: true });

function post(refund) {
  const body = JSON.stringify(refund);
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    "idempotency-key": refund.refund_ref,
    "refundd-attempt": "1",
  };
  return new Promise((resolve, reject) => {
    const request = http.request(bankUrl, { method: "POST", agent, headers }, (answer) => {
      answer.resume();
      answer.on("end", () => (answer.statusCode === 200 ? resolve() : reject(new Error(`status ${answer.statusCode}`))));
    });
    request.on("error", reject);
    request.end(body);
  });
}

const worker = new Worker("refunds", (job) => post(job.data), {
  connection: { host: "127.0.0.1", port: Number(redisPort), maxRetriesPerRequest: null },
  limiter: { max: Number(max), duration: 1000 },
  concurrency: Number(concurrency),
});
worker.on("error", (error) => console.error(error.message));
await worker.waitUntilReady();
console.log("ready");

process.stdin.resume();
process.stdin.on("end", async () => {
  await worker.close();
  process.exit(0);
});
