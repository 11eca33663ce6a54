import { createServer } from "node:http";
import { text } from "node:stream/consumers";

/** Serves the JSON value that `answer` returns for a JSON body. */
export function serve(answer, address, onListening) {
  const server = createServer(async (request, response) => {
    try {
      const body = JSON.stringify(await answer(JSON.parse(await text(request))));
      const length = Buffer.byteLength(body);
      response.writeHead(200, { "content-type": "application/json", "content-length": length });
      response.end(body);
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  });
  server.listen(address, () => onListening(server.address()));
}
