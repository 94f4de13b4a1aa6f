// BullMQ: jobs in Redis, taken and completed by its scripts. ADDRESS is a port of this machine.

import { Queue, Worker } from "bullmq";
import { address, concurrency, play, post } from "./stage.js";

const connection = { host: "127.0.0.1", port: Number(address), maxRetriesPerRequest: null };
const queue = new Queue("refunds", { connection, defaultJobOptions: { removeOnComplete: true } });

await play({
  prepare: () => queue.waitUntilReady(),
  most: 1000,
  add: (refunds) => queue.addBulk(refunds.map((data) => ({ name: "refund", data }))),
  work: async () => {
    const worker = new Worker("refunds", (job) => post(job.data), { connection, concurrency });
    worker.on("error", (error) => console.error(error.message));
    return () => worker.close(true);
  },
});
