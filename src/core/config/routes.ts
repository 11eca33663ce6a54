import { strictObject, z } from "zod";
import { plainNamePattern } from "../query/names.ts";
import { isPermissionClass, permissionClasses, tableRights } from "../query/permissions.ts";
import { flag, headerName, key, live, refuse, seconds, text } from "./kinds.ts";

/** First segments of the gateway's own paths, if `server.base_path` does not move them. */
const ownSegments: readonly string[] = [
  "api",
  "healthz",
  "login",
  "logout",
  "mcp",
  "oauth",
  "openapi.yaml",
  "query",
  "readyz",
  "schema",
];

/** The segments of a path. A slash at the end makes none. */
export function splitSegments(path: string): string[] {
  const segments = path.slice(1).split("/");
  return segments.at(-1) === "" ? segments.slice(0, -1) : segments;
}

/**
 * True for a path of the gateway itself, in any case. No configured route covers it.
 *
 * @param segments the segments of the path, decoded
 */
export function isOwnPath(segments: readonly string[], basePath: string): boolean {
  const first = segments[0]?.toLowerCase() ?? "";
  if (first === ".well-known") return true;
  if (basePath === "") return ownSegments.includes(first);
  return splitSegments(basePath.toLowerCase()).every(
    (one, at) => one === segments[at]?.toLowerCase(),
  );
}

/**
 * The forms of a parameter's value. Databases read many names that begin with `_` as commands or as
 * every table, such as `_all`.
 */
const forms = {
  plain: new RegExp(`^(?!_)${plainNamePattern}$`),
  number: /^-?\d{1,20}$/,
  uuid: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  any: /./s,
};

type RouteValues = keyof typeof forms | readonly string[];

export function fits(value: string, values: RouteValues = "plain"): boolean {
  return typeof values === "string" ? forms[values].test(value) : values.includes(value);
}

/** The values that a parameter of the path takes. */
export function allowedValues(
  { values }: { readonly values: Readonly<Record<string, RouteValues>> },
  name = "",
): RouteValues {
  return (Object.hasOwn(values, name) ? values[name] : undefined) ?? "plain";
}

const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;
/** Unreserved characters, which have only one spelling (RFC 3986, section 2.3). */
const literal = /^(?!\.{1,2}$)[A-Za-z0-9._~-]+$/;
const parameter = /^:[A-Za-z_][A-Za-z0-9_]*$/;

function isRoutePath(path: string): boolean {
  const [root, ...segments] = path.split("/");
  const last = segments.pop();
  if (root !== "" || last === undefined) return false;
  const isSegment = (one: string) => literal.test(one) || parameter.test(one);
  const names = pathParameters(path);
  return (
    segments.every(isSegment) &&
    (isSegment(last) || last === "" || last === "*") &&
    new Set(names).size === names.length
  );
}

/** The parameters of a path, or in a name such as `:tenant.:database`. */
function pathParameters(template = ""): string[] {
  return template
    .split(/[/.]/)
    .filter((part) => parameter.test(part))
    .map((part) => part.slice(1));
}

const name = `(?:(?!_)${plainNamePattern}|:[A-Za-z_][A-Za-z0-9_]*)`;
const routeKeys = strictObject({
  path: key(
    text(
      "/ and segments of letters, digits, -, ., _, ~ or :name; the last one may be empty or *",
      isRoutePath,
    ),
    "/db/:database/:collection",
    "Path of the route, matched as sent. :name matches one segment, and * at the end one or more.",
  ),
  methods: z.array(z.enum(methods)).min(1).default(["GET"]).describe("HTTP methods of the route."),
  access: key(
    z.enum(["public", "authenticated", "administrator", ...permissionClasses]),
    "SELECT",
    "Callers that are allowed: everyone, every user, administrators, or users with this right on the database or table.",
  ),
  database: key(
    text(
      "a name or :name, or two of them with a dot between, no name beginning with _",
      new RegExp(`^${name}(?:\\.${name})?$`),
    ).optional(),
    ":database",
    "Database that the route reaches, by name or by parameters of the path, as in :tenant.:database. If absent: :database.",
  ),
  database_header: key(
    headerName.optional(),
    "X-Database",
    "Request header that contains the name of the database, if the path does not.",
  ),
  table: key(
    text("a name that does not begin with _, or :name", new RegExp(`^${name}$`)).optional(),
    ":collection",
    "Table that the route reaches, by name or by a parameter of the path. If absent: the whole database.",
  ),
  values: key(
    z
      .record(
        text("a parameter of the path", /^[A-Za-z_][A-Za-z0-9_]*$/),
        z
          .union([
            z.enum(["plain", "number", "uuid", "any"]),
            z.array(z.string().regex(literal)).min(1),
          ])
          .meta({ title: '"plain", "number", "uuid", "any", or a non-empty array of segments' }),
      )
      .default({}),
    { collection: ["orders", "items"] },
    "Values of the path's parameters; others are 404. plain, the default, is a name of letters, digits, _ and - that does not begin with _.",
  ),
  query: key(
    z.array(text("a parameter name or *", /^(?:\*|[^\p{Cc}&;=*]{1,128})$/u)).optional(),
    ["limit"],
    'Query parameters that may be sent, each once; ["*"] for all that override no method. If absent: none if access is a right, else all.',
  ),
  forward_headers: z
    .array(headerName)
    .default([])
    .meta({
      description: "Further request headers that are forwarded on this route.",
      examples: [["Prefer"]],
    }),
  pages: flag(
    false,
    "Let pages of the upstream run scripts in a browser, with the rights of the user that opens them. Otherwise responses have `Content-Security-Policy: sandbox`.",
  ),
  upgrade: flag(false, "Allow WebSocket connections, by GET."),
  upgrade_idle_timeout: seconds
    .default(600)
    .describe("Seconds without a byte in either direction after which a WebSocket is closed."),
});

type Route = z.infer<typeof routeKeys>;

function requireConsistent(route: Route, context: z.core.$RefinementCtx): void {
  const { path, methods, access, table, values, database_header: header } = route;
  if (route.upgrade && !methods.includes("GET")) {
    refuse(context, ["upgrade"], "true only where GET is one of the methods");
  }
  const database = routeDatabase(route);
  const isRight = isPermissionClass(access);
  if (database !== undefined && header !== undefined) {
    refuse(context, ["database_header"], "nothing, since the path or database names the database");
  } else if (isRight && path.endsWith("/*")) {
    refuse(context, ["access"], "public, authenticated or administrator, since the path ends in *");
  } else if (isRight && database === undefined && header === undefined) {
    const rule =
      "a right on a database, which :database in the path, database or database_header names";
    refuse(context, ["access"], rule);
  }
  if (table !== undefined && !tableRights.some((right) => right === access)) {
    refuse(context, ["table"], `a table only where access is one of ${tableRights.join(", ")}`);
  }
  const parameters = pathParameters(path);
  const judged = { database: pathParameters(route.database), table: pathParameters(table) };
  for (const [key, names] of Object.entries(judged)) {
    const unknown = names.find((name) => !parameters.includes(name));
    if (unknown !== undefined)
      refuse(context, [key], `a parameter of the path, which has no :${unknown}`);
  }
  const named = new Set([...pathParameters(database), ...judged.table]);
  for (const [name, rule] of Object.entries(values)) {
    const list = typeof rule === "string" ? [] : rule;
    if (!parameters.includes(name)) {
      refuse(context, ["values"], `parameters of the path, which has no :${name}`);
    } else if (named.has(name) && (rule === "any" || !list.every((value) => fits(value)))) {
      const allowed = `"plain", "number", "uuid", or an array of plain names that do not begin with _, since :${name} names a database or table`;
      refuse(context, ["values", name], allowed);
    }
  }
}

/** Refuses routes that the gateway's own paths cover, since no request would reach them. */
export function refuseOwnPaths(
  routes: readonly Route[],
  basePath: string,
  context: z.core.$RefinementCtx,
): void {
  const own = basePath === "" ? ownSegments.map((one) => `/${one}`).join(", ") : basePath;
  for (const [at, { path, values }] of routes.entries()) {
    const [first = "", ...others] = splitSegments(path);
    if (isOwnPath([first, ...others], basePath)) {
      const rule = `a path that is not below one of the gateway's own: /.well-known, ${own}`;
      refuse(context, ["routes", at, "path"], rule);
    }
    const list = first.startsWith(":") ? allowedValues({ values }, first.slice(1)) : [];
    if (Array.isArray(list) && list.some((one) => isOwnPath([one, ...others], basePath))) {
      const rule = "no first segment of the gateway's own paths";
      refuse(context, ["routes", at, "values", first.slice(1)], rule);
    }
  }
}

/** The name or template of the database that a route reaches, if it is not in a header. */
export function routeDatabase({ path, database }: Pick<Route, "path" | "database">) {
  return database ?? (pathParameters(path).includes("database") ? ":database" : undefined);
}

/** Paths that differ only in parameter names are equal. */
const pathShape = (path: string) => path.replace(/(?<=\/:)[^/]*/g, "");

/** True if no value fits both rules. */
function excludes(one: RouteValues, other: RouteValues): boolean {
  if (typeof one !== "string") return !one.some((value) => fits(value, other));
  if (typeof other !== "string") return excludes(other, one);
  return [one, other].sort().join() === "number,uuid";
}

function isAmbiguousPair(one: Route, other: Route): boolean {
  if (pathShape(one.path) !== pathShape(other.path)) return false;
  const others = pathParameters(other.path);
  return !pathParameters(one.path).some((name, at) =>
    excludes(allowedValues(one, name), allowedValues(other, others[at])),
  );
}

export const routes = z
  .array(routeKeys.superRefine(requireConsistent))
  .superRefine((routes, context) => {
    for (const [at, route] of routes.entries()) {
      for (const [earlierAt, earlier] of routes.slice(0, at).entries()) {
        const method = route.methods.find((one) => earlier.methods.includes(one));
        if (method === undefined || !isAmbiguousPair(route, earlier)) continue;
        const place = `routes[${earlierAt}], ${method} ${earlier.path}`;
        refuse(context, [at, "path"], `a path that matches no request of ${place}`);
        break;
      }
    }
  })
  .default([])
  .meta(
    live(
      "Additional paths of the upstream that clients can reach, each with its allowed callers. The most specific path decides, whatever the order.",
    ),
  );
