import type { IncomingMessage, ServerResponse } from "node:http";
import type { OpenAddressLimit } from "./address-limit.ts";
import { allowAnyOrigin, OAuthProblem, sendJson, tooMany } from "./http.ts";
import { endpoints, metadataPaths, serverMetadata } from "./metadata.ts";
import type { AuthorizationServerOptions } from "./options.ts";
import { completeRequest } from "./policy.ts";

/** Answers a request to one path. */
export type Endpoint = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** A path of the server: how it is recognised, with which methods, and who answers. */
export interface EndpointRoute {
  readonly path: RegExp;
  readonly methods: readonly string[];
  readonly endpoint: Endpoint;
}

/** Authorization requests a minute: each one is kept until its user has answered. */
const authorizationBounds = { perAddress: 60, perSharedAddress: 600, window: 60 } as const;

/** Who answers what. */
export interface Endpoints {
  readonly issuer: string;
  readonly originOf: AuthorizationServerOptions["originOf"];
  readonly openLimit: OpenAddressLimit;
  /** The protocol library. */
  readonly protocol: Endpoint;
  readonly interaction: Endpoint;
  readonly applications: Endpoint;
  readonly registration: Endpoint;
  readonly revocation: Endpoint;
}

function exactly(path: string): RegExp {
  return new RegExp(`^${RegExp.escape(path)}$`);
}

function below(path: string): RegExp {
  return new RegExp(`^${RegExp.escape(path)}/[A-Za-z0-9_-]{1,64}$`);
}

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

/** The paths of the server. Those that are not here are not found, however they are spelled. */
export function endpointRoutes(all: Endpoints): readonly EndpointRoute[] {
  const metadata = open(async (_, response) => sendJson(response, 200, serverMetadata(all.issuer)));
  const limit = all.openLimit("authorizations", authorizationBounds);
  const authorization: Endpoint = async (request, response) => {
    const wait = await limit(all.originOf(request));
    if (wait > 0) throw tooMany("too many requests", wait);
    request.url = completeRequest(request.url ?? "");
    await all.protocol(request, response);
  };
  const get = ["GET", "HEAD"];
  return [
    ...metadataPaths.map((path) => ({
      path: exactly(path),
      methods: [...get, "OPTIONS"],
      endpoint: metadata,
    })),
    { path: exactly(endpoints.authorization), methods: get, endpoint: page(authorization) },
    { path: below(endpoints.authorization), methods: get, endpoint: page(all.protocol) },
    {
      path: below(endpoints.interaction),
      methods: [...get, "POST"],
      endpoint: page(all.interaction),
    },
    {
      path: exactly(endpoints.applications),
      methods: [...get, "POST"],
      endpoint: page(all.applications),
    },
    { path: exactly(endpoints.token), methods: ["POST", "OPTIONS"], endpoint: all.protocol },
    { path: exactly(endpoints.jwks), methods: [...get, "OPTIONS"], endpoint: all.protocol },
    {
      path: exactly(endpoints.registration),
      methods: ["POST", "OPTIONS"],
      endpoint: open(all.registration),
    },
    {
      path: exactly(endpoints.revocation),
      methods: ["POST", "OPTIONS"],
      endpoint: open(all.revocation),
    },
  ];
}

/** The route of a request. @throws OAuthProblem 404 or 405 */
export function findRoute(
  routes: readonly EndpointRoute[],
  { url = "", method = "" }: IncomingMessage,
): EndpointRoute {
  const [path = ""] = url.split("?");
  const route = routes.find((candidate) => candidate.path.test(path));
  if (route === undefined) throw new OAuthProblem(404, "not_found", "there is nothing here");
  if (route.methods.includes(method)) return route;
  const allow = route.methods.join(", ");
  throw new OAuthProblem(405, "invalid_request", `the method must be ${allow}`, { Allow: allow });
}
