// graphile-worker with its local queue and its batches of completions, as its page on performance sets them.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { address, concurrency, play, post } from "./stage.js";

const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const preset = {
  worker: {
    connectionString: address,
    maxPoolSize: 10,
    schema: "graphile_worker",
    concurrentJobs: concurrency,
    pollInterval: 100,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger,
  },
};
const utils = await makeWorkerUtils({ preset });

await play({
  prepare: () => utils.migrate(),
  most: 10_000,
  add: (refunds) => utils.addJobs(refunds.map((payload) => ({ identifier: "refund", payload }))),
  work: async () => {
    const runner = await run({ preset, noHandleSignals: true, taskList: { refund: post } });
    return () => runner.stop();
  },
});
