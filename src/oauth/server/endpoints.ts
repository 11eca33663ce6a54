import type { IncomingMessage, ServerResponse } from "node:http";
import { allowAnyOrigin, OAuthProblem, sendJson, tooMany, withWholeBody } from "./http.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { completeRequest } from "./policy.ts";
import { endpoints, metadataPaths, serverMetadata } from "./protocol.ts";
import { addressLimit } from "./rate-limit.ts";

/** Answers a request to one path. */
export type Endpoint = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** What a path of the server answers to, and who answers. */
interface EndpointRoute {
  readonly methods: readonly string[];
  readonly endpoint: Endpoint;
}

/** The routes by their paths; those of something that has a name are `below` theirs. */
type EndpointRoutes = ReadonlyMap<string, EndpointRoute>;

/** Authorization requests a minute: each one is kept until its user has answered. */
const authorizationBounds = { perAddress: 60, perSharedAddress: 600, window: 60 } as const;

/** Who answers what; `protocol` is the library. */
type Endpoints = Readonly<
  Record<"protocol" | "interaction" | "applications" | "registration" | "revocation", Endpoint>
>;

/** Open to pages of every origin: what is asked and answered there is bound to no cookie. */
function open(endpoint: Endpoint): Endpoint {
  return async (request, response) => {
    if (!allowAnyOrigin(request, response)) await endpoint(request, response);
  };
}

/**
 * For a browser to go to. A script that asks for a page could read it and answer in its user's
 * place, also one of this origin, which what stands behind the gateway may share (Fetch Metadata;
 * programs that are no browser do not say from which site they ask).
 */
function page(endpoint: Endpoint): Endpoint {
  return async (request, response) => {
    const { "sec-fetch-site": site, "sec-fetch-mode": mode } = request.headers;
    if (site !== undefined && mode !== "navigate") {
      throw new OAuthProblem(403, "invalid_request", "this page is not for a script to read");
    }
    await endpoint(request, response);
  };
}

/** No path holds a space. */
const below = " below";
const reads = ["GET", "HEAD"];
const readsAnywhere = [...reads, "OPTIONS"];
const forms = [...reads, "POST"];
const posts = ["POST", "OPTIONS"];

/** The paths of the server. Those that are not here are not found, however they are spelled. */
export function endpointRoutes(
  options: Pick<AuthorizationServerOptions, "issuer" | "originOf" | "countRequests">,
  all: Endpoints,
): EndpointRoutes {
  const { issuer, originOf, countRequests } = options;
  const metadata = open(async (_, response) => sendJson(response, 200, serverMetadata(issuer)));
  const limit = addressLimit(countRequests, "authorizations", authorizationBounds);
  const authorization: Endpoint = async (request, response) => {
    const wait = await limit(originOf(request));
    if (wait > 0) throw tooMany("too many requests", wait);
    request.url = completeRequest(request.url ?? "");
    await all.protocol(request, response);
  };
  const token: Endpoint = async (request, response) =>
    all.protocol(await withWholeBody(request), response);
  const routes: [path: string, methods: readonly string[], endpoint: Endpoint][] = [
    ...metadataPaths.map((path): (typeof routes)[number] => [path, readsAnywhere, metadata]),
    [endpoints.authorization, reads, page(authorization)],
    [`${endpoints.authorization}${below}`, reads, page(all.protocol)],
    [`${endpoints.interaction}${below}`, forms, page(all.interaction)],
    [endpoints.applications, forms, page(all.applications)],
    [endpoints.token, posts, token],
    [endpoints.jwks, readsAnywhere, all.protocol],
    [endpoints.registration, posts, open(all.registration)],
    [endpoints.revocation, posts, open(all.revocation)],
  ];
  return new Map(routes.map(([path, methods, endpoint]) => [path, { methods, endpoint }]));
}

/** The name of something, such as an interaction, behind the last slash. */
const named = /\/[A-Za-z0-9_-]{1,64}$/;

/** The route of a request. @throws OAuthProblem 404 or 405 */
export function findRoute(
  routes: EndpointRoutes,
  { url = "", method = "" }: IncomingMessage,
): EndpointRoute {
  const [path = ""] = url.split("?");
  const route = routes.get(path) ?? routes.get(path.replace(named, below));
  if (route === undefined) throw new OAuthProblem(404, "not_found", "there is nothing here");
  if (route.methods.includes(method)) return route;
  const allow = route.methods.join(", ");
  throw new OAuthProblem(405, "invalid_request", `the method must be ${allow}`, { Allow: allow });
}
