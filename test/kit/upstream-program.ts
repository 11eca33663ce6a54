/**
 * A database process that can be killed: it notes each query's id in a file before it answers with
 * that id, a moment later. Its arguments are a port and the file. On SIGUSR2 it cuts every
 * connection and goes on.
 */
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";

const [port, file = ""] = process.argv.slice(2);

const server = createServer(async (request, response) => {
  const id = /"(id-\d+)"/.exec(await text(request))?.[1] ?? "";
  appendFileSync(file, `${id}\n`);
  await delay(5);
  response.end(JSON.stringify(id));
});
server.listen(Number(port), "127.0.0.1");
process.on("SIGUSR2", () => server.closeAllConnections());
