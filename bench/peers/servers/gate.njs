import fs from "fs";

const directory = "@DIRECTORY@";
const roles = JSON.parse(fs.readFileSync(directory + "/roles.json"));
const spki = Buffer.from(
  fs.readFileSync(directory + "/ES256.pem", "utf8").replace(/-----[A-Z ]+-----|\s/g, ""),
  "base64",
);
const permissions = { Select: "read", Insert: "write", Update: "write", Delete: "write" };

async function claimsOf(token) {
  const parts = token.split(".");
  if (parts.length !== 3) return undefined;
  const header = JSON.parse(Buffer.from(parts[0], "base64url"));
  if (header.alg !== "ES256") return undefined;
  const curve = { name: "ECDSA", namedCurve: "P-256" };
  const key = await crypto.subtle.importKey("spki", spki, curve, false, ["verify"]);
  const signature = Buffer.from(parts[2], "base64url");
  const signed = Buffer.from(parts[0] + "." + parts[1]);
  const isValid = await crypto.subtle.verify({ name: "ECDSA", hash: "SHA-256" }, key, signature, signed);
  if (!isValid) return undefined;
  const claims = JSON.parse(Buffer.from(parts[1], "base64url"));
  if (claims.iss !== "gatehouse" || claims.aud !== "gatehouse") return undefined;
  return claims.exp > Date.now() / 1000 ? claims : undefined;
}

async function query(r) {
  let claims;
  try {
    const authorization = r.headersIn.Authorization || "";
    claims = authorization.startsWith("Bearer ") ? await claimsOf(authorization.slice(7)) : undefined;
  } catch (e) {
    claims = undefined;
  }
  if (claims === undefined) {
    r.return(401);
    return;
  }
  const body = JSON.parse(r.requestText);
  const operation = Object.keys(body)[0];
  const permission = permissions[operation];
  const role = permission && roles[claims.sub + ":" + body[operation].database];
  if (role !== "write" && !(role === "read" && permission === "read")) {
    r.return(403);
    return;
  }
  r.internalRedirect("@upstream");
}

export default { query };
