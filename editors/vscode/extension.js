// Starts ln-lsp for the languages of this extension. Both settings are of the machine, so that no folder that is opened can name
// a program to run.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
  const settings = workspace.getConfiguration("lightnet");
  const server = { command: settings.get("server"), args: settings.get("arguments") };
  // JSON too: ln-lsp says nothing of JSON that is neither a network nor a description.
  const documentSelector = ["mlir", "lightnet-il", "lightnet-op", "json"].map((language) => ({ language }));
  client = new LanguageClient("lightnet", "LightNet", server, { documentSelector });
  return client.start();
}

function deactivate() {
  return client && client.stop();
}

module.exports = { activate, deactivate };
