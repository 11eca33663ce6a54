import { createServer } from "node:https";
import type { Test } from "tap";
import { makeCertificate } from "../kit/certificate.ts";
import { listening } from "../kit/listening.ts";

type Served = { readonly document: unknown } | { readonly location: string };

/** An https server on this machine, named `localhost`. */
export interface DocumentHost {
  readonly host: string;
  readonly port: number;
  readonly url: string;
  readonly cert: string;
  readonly served: Map<string, Served>;
  reached(): number;
}

/** Starts a host of client documents that ends with the test. */
export async function openDocumentHost(t: Test): Promise<DocumentHost> {
  const { cert, key } = makeCertificate("localhost");
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
  const port = await listening(t, server);
  const host = `localhost:${port}`;
  return { host, port, url: `https://${host}`, cert, served, reached: () => connections };
}
