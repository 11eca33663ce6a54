/**
 * Loaded into a process (`node --import`): measures the longest turn of its event loop in processor
 * time, which does not depend on other processes.
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
  // Answers with the longest turn since the last request, in milliseconds.
  createServer((_request, response) => {
    response.end(String(longest));
    longest = 0;
  })
    .listen(socket)
    .unref();
}
