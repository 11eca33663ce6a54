import { type LookupAddress, lookup as systemLookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import { Agent, request } from "undici";
import type { ClientMetadata } from "./client-metadata.ts";

/** True for an address that a document may be fetched from. */
type AddressRule = (address: string) => boolean;

/** The only IPv6 addresses that are given out to the public (RFC 4291, section 2.4). */
const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");

/** True for an address of the public internet: none that is private, local or reserved. */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== "unicast") return false;
  return parsed.kind() === "ipv4" || parsed.match(globalUnicast);
}

const privateRanges: ReadonlySet<string> = new Set([
  ...["loopback", "private", "uniqueLocal", "carrierGradeNat"],
]);

/**
 * True for an address that a host in an operator's own network has. Those of a link alone are not
 * among them: where machines are rented, they hand out credentials.
 */
export function isNetworkAddress(address: string): boolean {
  if (isPublicAddress(address)) return true;
  return ipaddr.isValid(address) && privateRanges.has(ipaddr.process(address).range());
}

/** All addresses of a name, as the system resolves it. */
export type ResolveAll = (
  hostname: string,
  done: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/**
 * A lookup that gives only addresses that the rule allows, or none. The socket is opened to what it
 * gives, so that the address that was checked is the one that is used.
 */
function guardedLookup(isAllowed: AddressRule, resolve: ResolveAll): LookupFunction {
  return (hostname, options, done) => {
    resolve(hostname, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null || first === undefined) {
        done(error ?? new Error("the host has no address"), "", 0);
      } else if (!addresses.every(({ address }) => isAllowed(address))) {
        done(new Error("the host has an address that is not public"), "", 0);
      } else if (options.all === true) done(null, addresses);
      else done(null, first.address, first.family);
    });
  };
}

/** Fetches the document at `url`, or says with an error why it may not be had. */
export type DocumentFetch = (url: string, signal: AbortSignal) => Promise<ClientDocument>;

/** A client ID metadata document as it came. */
export interface ClientDocument {
  readonly body: string;
  readonly cacheControl: string | undefined;
}

/** The bounds on a document: bytes of its body, and milliseconds until it is there whole. */
export const DOCUMENT_LIMITS = { bytes: 5 * 1024, milliseconds: 5000 } as const;

/** Which hosts are asked, and how their names are resolved. */
interface DocumentFetchOptions {
  /** Hosts, as they stand in https URLs, that may have private addresses. */
  readonly privateHosts?: readonly string[];
  readonly resolve?: ResolveAll;
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

/** Connections to addresses that the rule allows; no host is asked by the rule of another one. */
function openAgent(isAllowed: AddressRule, resolve: ResolveAll): Agent {
  return new Agent({
    connect: {
      lookup: guardedLookup(isAllowed, resolve),
      timeout: DOCUMENT_LIMITS.milliseconds,
    },
    keepAliveTimeout: 1,
  });
}

/**
 * Makes the fetch of client ID metadata documents: https, public addresses unless the operator has
 * named the host, no redirect, within the bounds, and nothing sent but the request itself.
 */
export function createDocumentFetch({
  privateHosts = [],
  resolve = (hostname, done) => systemLookup(hostname, { all: true }, done),
}: DocumentFetchOptions = {}): DocumentFetch {
  const outside = { isAllowed: isPublicAddress, agent: openAgent(isPublicAddress, resolve) };
  const inside = { isAllowed: isNetworkAddress, agent: openAgent(isNetworkAddress, resolve) };
  const named = new Set(privateHosts);
  return async (text, signal) => {
    const url = new URL(text);
    if (url.protocol !== "https:") throw new Error("the document is not at an https URL");
    const { isAllowed, agent: dispatcher } = named.has(url.host) ? inside : outside;
    // A host that is an address itself is looked up by nothing.
    const literal = url.hostname.replace(/^\[|\]$/g, "");
    if (isIP(literal) !== 0 && !isAllowed(literal)) throw new Error("the address is not public");
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
  readMetadata: (document: unknown) => ClientMetadata,
): (url: string | URL | Request, options?: RequestInit) => Promise<Response> {
  return async (url, options) => {
    if (typeof url !== "string") throw new Error("only client documents are fetched");
    const signal = options?.signal ?? AbortSignal.timeout(DOCUMENT_LIMITS.milliseconds);
    const { body, cacheControl } = await fetchDocument(url, signal);
    const document: unknown = JSON.parse(body);
    const named = typeof document === "object" && document !== null && "client_id" in document;
    const metadata = readMetadata(document);
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
