import { type LookupAddress, lookup as systemLookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import { Agent, request } from "undici";
import { readClientMetadata } from "./client-metadata.ts";

/** Fetches the document at `url`, or says with an error why it may not be had. */
export type DocumentFetch = (url: string, signal: AbortSignal) => Promise<ClientDocument>;

/** A client ID metadata document as it came. */
export interface ClientDocument {
  readonly body: string;
  readonly cacheControl: string | undefined;
}

/** The bounds on a document: bytes of its body, and milliseconds until it is there whole. */
export const DOCUMENT_LIMITS = { bytes: 5 * 1024, milliseconds: 5000 } as const;

/** The only IPv6 addresses that are given out to the public (RFC 4291, section 2.4). */
const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");

/** True for an address of the public internet: none that is private, local or reserved. */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== "unicast") return false;
  return parsed.kind() === "ipv4" || parsed.match(globalUnicast);
}

/** All addresses of a name, as the system resolves it. */
export type ResolveAll = (
  hostname: string,
  done: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

function resolveAll(hostname: string, done: Parameters<ResolveAll>[1]): void {
  systemLookup(hostname, { all: true }, done);
}

/**
 * A lookup that gives only public addresses. The socket is opened to what it gives, so that the
 * address that was checked is the one that is used.
 */
function publicLookup(resolve: ResolveAll): LookupFunction {
  return (hostname, options, done) => {
    resolve(hostname, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null || first === undefined) {
        done(error ?? new Error("the host has no address"), "", 0);
      } else if (!addresses.every(({ address }) => isPublicAddress(address))) {
        done(new Error("the host has an address that is not public"), "", 0);
      } else if (options.all === true) done(null, addresses);
      else done(null, first.address, first.family);
    });
  };
}

function checkUrl(text: string): void {
  const { protocol, hostname } = new URL(text);
  if (protocol !== "https:") throw new Error("the document is not at an https URL");
  const literal = hostname.replace(/^\[|\]$/g, "");
  if (isIP(literal) !== 0 && !isPublicAddress(literal)) {
    throw new Error("the address is not public");
  }
}

async function readBounded(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > DOCUMENT_LIMITS.bytes) throw new Error("the document is too large");
    chunks.push(chunk);
  }
  return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
}

/**
 * Makes the fetch of client ID metadata documents: https, public addresses, no redirect, within
 * the bounds, and nothing sent but the request itself.
 */
export function createDocumentFetch(resolve: ResolveAll = resolveAll): DocumentFetch {
  const dispatcher = new Agent({
    connect: { lookup: publicLookup(resolve), timeout: DOCUMENT_LIMITS.milliseconds },
    keepAliveTimeout: 1,
  });
  return async (url, signal) => {
    checkUrl(url);
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(DOCUMENT_LIMITS.milliseconds)]);
    const { statusCode, headers, body } = await request(url, {
      dispatcher,
      signal: bounded,
      headers: { accept: "application/json" },
    });
    if (statusCode !== 200) {
      body.destroy();
      throw new Error(`the document was answered with ${statusCode}`);
    }
    const cacheControl = headers["cache-control"];
    return {
      body: await readBounded(body),
      cacheControl: typeof cacheControl === "string" ? cacheControl : undefined,
    };
  };
}

/**
 * The same as a `fetch` for the library that asks for these documents: what it sees of a document
 * is what counts here and no more, so that no document can make it fetch anything else.
 */
export function asLibraryFetch(
  fetchDocument: DocumentFetch,
): (url: string | URL | Request, options?: RequestInit) => Promise<Response> {
  return async (url, options) => {
    if (typeof url !== "string") throw new Error("only client documents are fetched");
    const signal = options?.signal ?? AbortSignal.timeout(DOCUMENT_LIMITS.milliseconds);
    const { body, cacheControl } = await fetchDocument(url, signal);
    const document: unknown = JSON.parse(body);
    const named = typeof document === "object" && document !== null && "client_id" in document;
    const metadata = readClientMetadata(document);
    return Response.json(
      {
        ...metadata,
        application_type: "native",
        ...(named ? { client_id: document.client_id } : {}),
      },
      { headers: cacheControl === undefined ? {} : { "cache-control": cacheControl } },
    );
  };
}
