// Puts the peer's whole backlog in line: node fill.js REDIS_PORT COUNT

import { Queue } from "bullmq";

const [redisPort, count] = process.argv.slice(2).map(Number);
const queue = new Queue("refunds", {
  connection: { host: "127.0.0.1", port: redisPort },
  defaultJobOptions: { removeOnComplete: true },
});
const jobs = Array.from({ length: count }, (_, n) => ({
  name: "refund",
  data: { refund_ref: `B-${n + 1}`, channel: "bullmq", payment_ref: `P-${n + 1}`, amount_minor: n + 1, currency: "EUR" },
}));
for (let from = 0; from < jobs.length; from += 1000) {
  await queue.addBulk(jobs.slice(from, from + 1000));
}
await queue.close();
console.log("filled");
process.exit(0);
