/**
 * Loaded into a process (`node --import`): measures for how long its event loop is held at a time.
 * It counts the processor time that the main thread spends between two turns of the loop, which
 * other processes on a busy machine do not add to.
 */
import { createServer } from "node:http";

const socket = process.env.LOOP_PROBE;

if (socket !== undefined && process.argv.includes("serve")) {
  let longest = 0;
  let last = process.threadCpuUsage();
  setInterval(() => {
    const { user, system } = process.threadCpuUsage(last);
    last = process.threadCpuUsage();
    longest = Math.max(longest, (user + system) / 1000);
  }, 1).unref();
  // Answers with the milliseconds of the longest turn since it was asked last.
  createServer((_request, response) => {
    response.end(String(longest));
    longest = 0;
  })
    .listen(socket)
    .unref();
}
