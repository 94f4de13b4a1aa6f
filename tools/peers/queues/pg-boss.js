// pg-boss with two workers that fetch whole batches without a pause, so that one fetches while the other's calls
// are out. Each job of a batch is settled by itself, as refunds would have to be.

import { PgBoss } from "pg-boss";
import { address, concurrency, play, post } from "./stage.js";

const boss = new PgBoss({ connectionString: address, max: 10 });
boss.on("error", (error) => console.error(error.message));

const workers = 2;
const options = {
  batchSize: Math.max(1, Math.floor(concurrency / workers)),
  localConcurrency: workers,
  burstWhenBatchFull: true,
  pollingIntervalSeconds: 0.5,
  perJobResults: true,
};

await play({
  prepare: async () => {
    await boss.start();
    await boss.createQueue("refunds");
  },
  most: 10_000,
  add: (refunds) => boss.insert("refunds", refunds.map((data) => ({ data }))),
  work: async () => {
    await boss.work("refunds", options, (jobs) =>
      Promise.all(
        jobs.map((job) =>
          post(job.data).then(
            () => ({ id: job.id, status: "completed" }),
            (error) => ({ id: job.id, status: "failed", output: { message: error.message } }),
          ),
        ),
      ),
    );
    return () => boss.stop({ graceful: false });
  },
});
