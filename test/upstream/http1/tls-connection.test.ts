import { once } from "node:events";
import { setDefaultCACertificates } from "node:tls";
import { Worker } from "node:worker_threads";
import t from "tap";
import { ConnectionPool } from "../../../src/upstream/http1/connection.ts";
import { parseTarget } from "../../../src/upstream/target.ts";
import { makeCertificate } from "../../kit/certificate.ts";
import { PATIENCE_MS } from "../../kit/eventually.ts";
import { ask } from "./kit.ts";

/** Answers with the number of connections so far, and counts the answers that are out. */
const upstream = `
  const { createServer } = require("node:https");
  const { parentPort, workerData } = require("node:worker_threads");
  let connections = 0;
  const server = createServer(workerData, (request, response) => {
    request.resume().on("end", () => response.end(String(connections), () => {
      Atomics.add(workerData.answers, 0, 1);
      Atomics.notify(workerData.answers, 0);
    }));
  });
  server.on("secureConnection", () => connections++);
  server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
`;

t.test("an answer that is read before its request is told to be out ends nothing", async (t) => {
  const certificate = makeCertificate("localhost");
  setDefaultCACertificates([certificate.cert]);
  const answers = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(upstream, { eval: true, workerData: { ...certificate, answers } });
  const [port] = await once(worker, "message");
  const timeouts = { connect: PATIENCE_MS, response: PATIENCE_MS };
  const pool = new ConnectionPool(parseTarget(`https://localhost:${port}`), timeouts);
  t.teardown(async () => {
    pool.close();
    await worker.terminate();
  });
  t.match(await ask(pool), { body: "1" });
  for (let turn = 0; turn < 3; turn++) {
    const before = Atomics.load(answers, 0);
    const answer = ask(pool);
    // As a busy gateway does, it looks for what has come only once the answer is there.
    setImmediate(() => Atomics.wait(answers, 0, before, 5000));
    t.match(await answer, { body: "1" }, "on the same connection");
  }
});
