import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import t from "tap";
import { readBody } from "../../src/engine/server.ts";

t.test("a body arrives whole, however it is cut up", async (t) => {
  const body = Promise.withResolvers<Buffer>();
  const server = createServer((request, response) => {
    body.resolve(readBody(request));
    body.promise.finally(() => response.end());
  }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  const address: AddressInfo | string | null = server.address();
  const socket = connect(typeof address === "object" ? (address?.port ?? 0) : 0, "127.0.0.1");
  t.teardown(() => socket.destroy());
  // More than the first room for a body, in chunks of a single byte.
  const text = Array.from({ length: 200_000 }, (_, at) => String(at % 10)).join("");
  const chunks = text.replace(/./g, (digit) => `1\r\n${digit}\r\n`);
  socket.write("POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
  socket.write(`${chunks}0\r\n\r\n`);
  t.ok((await body.promise).equals(Buffer.from(text)));
});
