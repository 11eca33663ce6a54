import { z } from "zod";
import { isPermissionClass, permissionClasses } from "../../query/permissions.ts";
import { isForwardableHeader } from "../headers.ts";
import { flag, refuse, seconds, text } from "../kinds.ts";

/** First segments of the gateway's own paths; a configured route may not start with one. */
const builtInSegments: ReadonlySet<string> = new Set([
  ...[".well-known", "api", "healthz", "login", "logout"],
  ...["mcp", "oauth", "query", "readyz", "schema"],
]);

const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;
/** Unreserved characters (RFC 3986, section 2.3): they have one spelling. */
const literal = /^(?!\.{1,2}$)[A-Za-z0-9._~-]+$/;
const parameter = /^:[A-Za-z_][A-Za-z0-9_]*$/;

const path = text(
  "/ and segments of letters, digits, -, ., _, ~ or :name, not under a path of the gateway's own",
  isRoutePath,
);
const access = z.enum(["public", "authenticated", "administrator", ...permissionClasses]);
const databaseHeader = text(
  "a header name that is not hop-by-hop, no credential, and not set by the gateway itself",
  isForwardableHeader,
);

function isRoutePath(path: string): boolean {
  const [root, first, ...rest] = path.split("/");
  if (root !== "" || first === undefined) return false;
  if (!literal.test(first) || builtInSegments.has(first.toLowerCase())) return false;
  const parameters = rest.filter((segment) => parameter.test(segment));
  return (
    rest.every((segment) => literal.test(segment) || parameter.test(segment)) &&
    new Set(parameters).size === parameters.length
  );
}

const route = z
  .strictObject({
    path: path.meta({
      description: "Path of the route, matched as sent; :name stands for one segment.",
      examples: ["/db/:database/stats"],
    }),
    methods: z.array(z.enum(methods)).min(1).default(["GET"]).describe("Methods of the route."),
    access: access.meta({
      description:
        "Who may call it: everybody, every user, administrators, or whoever has this right on the database.",
      examples: ["SELECT"],
    }),
    database_header: databaseHeader.optional().meta({
      description: "Request header that names the database, if the path has no :database.",
      examples: ["X-Database"],
    }),
    upgrade: flag(false, "Whether clients may speak WebSocket on it, by GET."),
    upgrade_idle_timeout: seconds()
      .default(600)
      .describe("Seconds without a byte either way after which a WebSocket is closed."),
  })
  .superRefine((route, context) => {
    if (route.upgrade && !route.methods.includes("GET")) {
      refuse(context, ["upgrade"], "true only where GET is one of the methods");
    }
    const named = route.path.split("/").includes(":database");
    const sources = Number(named) + Number(route.database_header !== undefined);
    if (!isPermissionClass(route.access) || sources === 1) return;
    const rule = "a right on a database, which :database in the path or database_header names";
    refuse(context, ["access"], sources === 0 ? rule : `${rule}, and not both`);
  });

/** Two paths are the same if they differ by the names of parameters alone. */
function shapeOf(path: string): string {
  return path
    .split("/")
    .map((segment) => (segment.startsWith(":") ? ":" : segment))
    .join("/");
}

/** `[[routes]]`: further paths of the upstream that are let through. */
export const routes = z
  .array(route)
  .superRefine((routes, context) => {
    const seen = new Set<string>();
    for (const [index, route] of routes.entries()) {
      for (const method of new Set(route.methods)) {
        const identity = `${method} ${shapeOf(route.path)}`;
        if (seen.has(identity)) {
          refuse(
            context,
            [index, "path"],
            `each path and method once, and ${identity} is already there`,
          );
        }
        seen.add(identity);
      }
    }
  })
  .default([])
  .meta({
    description: "Further paths of the upstream that are let through, each with who may call it.",
    live: true,
  });
