/** The lower bound: `node:http` and undici's dispatch without checks. */
import { createServer } from "node:http";
import { Pool } from "undici";

const [upstream] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 64, pipelining: 1 });

class Answer {
  #response;

  constructor(response) {
    this.#response = response;
  }

  onRequestStart() {}

  onResponseStart(controller, status) {
    const response = this.#response;
    // Abort, or the rest of the response would block its connection.
    const abandon = () => controller.abort(new Error("the client has gone"));
    if (response.destroyed) {
      abandon();
      return;
    }
    response.writeHead(
      status,
      controller.rawHeaders.map((part) => part.toString("latin1")),
    );
    response.once("close", () => response.writableFinished || abandon());
    response.on("drain", () => controller.resume());
  }

  onResponseData(controller, chunk) {
    if (!this.#response.write(chunk)) controller.pause();
  }

  onResponseEnd() {
    this.#response.end();
  }

  onResponseError() {
    this.#response.destroy();
  }
}

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
    const { "content-type": type, accept = "*/*" } = request.headers;
    const headers = ["content-type", type, "accept", accept];
    pool.dispatch({ path: request.url, method: "POST", body, headers }, new Answer(response));
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
