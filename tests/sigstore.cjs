// Verify a bundle with the libraries of npm's own provenance check, then each of its bytes changed.
// In: the bundle's file, the public key's, and every how many bytes of the payload to change.
// Out: `accepted, N changes refused`, or an exception.
"use strict";
const fs = require("fs");
const crypto = require("crypto");
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");

const [bundleFile, keyFile, payloadStep] = process.argv.slice(2);
const document = JSON.parse(fs.readFileSync(bundleFile, "utf8"));
const hint = document.verificationMaterial.publicKey.hint;
const spki = crypto.createPublicKey(fs.readFileSync(keyFile)).export({ type: "spki", format: "der" });
const root = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
const verifier = new Verifier(toTrustMaterial(root, { [hint]: { rawBytes: spki } }), {
  ctlogThreshold: 0,
  tlogThreshold: 0,
  timestampThreshold: 0,
});
const verify = () => verifier.verify(toSignedEntity(bundleFromJSON(document)));

function refuseChanges(holder, name, step) {
  const good = Buffer.from(holder[name], "base64");
  for (let place = 0; place < good.length; place += step) {
    const changed = Buffer.from(good);
    changed[place] ^= 1;
    holder[name] = changed.toString("base64");
    let error = null;
    try {
      verify();
    } catch (caught) {
      error = caught;
    }
    if (error === null) throw new Error(`byte ${place} of ${name} changed, and accepted`);
  }
  holder[name] = good.toString("base64");
  return Math.ceil(good.length / step);
}

verify();
const envelope = document.dsseEnvelope;
const signature = envelope.signatures[0];
const changes =
  refuseChanges(envelope, "payload", Number(payloadStep)) + refuseChanges(signature, "sig", 1);
verify();
console.log(`accepted, ${changes} changes refused`);
