/**
 * An upstream process that can be killed. It appends each query's id to a file and then answers with
 * the id. Its arguments are a port and the file. SIGUSR2 closes all connections.
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
