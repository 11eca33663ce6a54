import { createServer } from "node:https";
import type { Test } from "tap";
import { makeCertificate } from "../kit/certificate.ts";

/** What a host answers at a path: a document, or where it sends whoever asks. */
type Served = { readonly document: unknown } | { readonly location: string };

/** An https server on this machine, by the name `localhost`. */
export interface DocumentHost {
  readonly host: string;
  readonly port: number;
  readonly url: string;
  /** Its certificate, PEM. */
  readonly cert: string;
  readonly served: Map<string, Served>;
  /** How many connections it has had. */
  reached(): number;
}

/** Starts a host of documents; it ends with the test. */
export async function openDocumentHost(t: Test, name = "localhost"): Promise<DocumentHost> {
  const { cert, key } = makeCertificate(name);
  const served = new Map<string, Served>();
  let connections = 0;
  const server = createServer({ cert, key }, (request, response) => {
    const answer = served.get(request.url ?? "");
    if (answer === undefined) response.writeHead(404).end();
    else if ("location" in answer) response.writeHead(302, { location: answer.location }).end();
    else {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(answer.document));
    }
  });
  server.on("connection", () => connections++);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const { port } = address;
  const host = `${name}:${port}`;
  return { host, port, url: `https://${host}`, cert, served, reached: () => connections };
}
