{{- define "koff.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := .Release.Name | replace "." "-" -}}
{{- if not (contains "koff" $name) }}{{ $name = printf "%s-koff" $name }}{{ end -}}
{{- /* The name of a Service may not begin with a digit. */ -}}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "koff-%s" $name }}{{ end -}}
{{- /* The controller adds 11 characters to the name of a StatefulSet, for a label of at most 63. */ -}}
{{- if gt (len $name) 52 }}{{ $name = printf "%s-%s" (trunc 43 $name | trimAll "-") (sha256sum $name | trunc 8) }}{{ end -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{- define "koff.selector" -}}
app.kubernetes.io/name: koff
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "koff.labels" -}}
{{ include "koff.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The first of two pods sends to the webhooks, and the other one is its standby. */}}
{{- define "koff.isPair" -}}
{{- if and (gt (int .Values.replicas) 1) .Values.config.webhooks -}}true{{- end -}}
{{- end }}

{{/* Shards, saved state and a pair need pods with an identity. */}}
{{- define "koff.isStateful" -}}
{{- if or (gt (int .Values.shards) 1) .Values.state.enabled (include "koff.isPair" .) -}}true{{- end -}}
{{- end }}

{{- define "koff.podsService" -}}
{{ include "koff.name" . }}{{ if include "koff.isPair" . }}-pods{{ end }}
{{- end }}

{{- define "koff.config" -}}
{{- $own := dict "listen" ":9850" -}}
{{- if .Values.state.enabled }}{{ $_ := set $own "state_dir" "/var/lib/koff/state" }}{{ end -}}
{{- toYaml (merge $own .Values.config) -}}
{{- end }}

{{/* A mapping of values over the defaults of the chart, with the labels of koff: (list labels root) */}}
{{- define "koff.withLabels" -}}
{{- toYaml (merge dict (index . 0 | default dict) (include "koff.labels" (index . 1) | fromYaml)) -}}
{{- end }}

{{- define "koff.metadata" -}}
{{- $own := index .root.Values .name -}}
name: {{ include "koff.name" .root }}
{{- with $own.namespace }}
namespace: {{ . | quote }}
{{- end }}
labels: {{ include "koff.withLabels" (list $own.labels .root) | nindent 2 }}
{{- with $own.annotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A monitor in another namespace must be told where the pods are. */}}
{{- define "koff.monitored" -}}
{{- if (index .root.Values .name).namespace -}}
namespaceSelector: {matchNames: [{{ .root.Release.Namespace | quote }}]}
{{ end -}}
selector:
  matchLabels: {{ include "koff.selector" .root | nindent 4 }}
{{- end }}

{{- define "koff.endpoint" -}}
- port: http
  {{- if .root.Values.webConfig.tls }}
  scheme: https
  {{- end }}
  {{- with (index .root.Values .name).endpoint }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- define "koff.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "koff.name" .) }}
{{- end }}

{{- define "koff.image" -}}
{{- $version := print ":" (.Values.image.tag | default .Chart.AppVersion) }}
{{- with .Values.image.digest }}{{ $version = print "@" . }}{{ end }}
{{- print .Values.image.repository $version | quote }}
{{- end }}

{{- define "koff.podSecurity" -}}
{{- $own := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if .Values.state.enabled }}{{ $_ := set $own "fsGroup" 65532 }}{{ end -}}
{{- toYaml (merge dict (.Values.podSecurityContext | default dict) $own) -}}
{{- end }}

{{- define "koff.security" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- toYaml (merge dict (.Values.securityContext | default dict) $own) -}}
{{- end }}

{{- define "koff.probe" -}}
{{ if .values.webConfig.clientCert -}}
exec:
  command:
    - koff
    - health
    - --listen=:9850
    {{- if eq .path "/readyz" }}
    - --ready
    {{- end }}
    - --client-cert
    - {{ print "/etc/koff-secrets/" .values.webConfig.clientCert | quote }}
    {{- with .values.webConfig.clientKey }}
    - --client-key
    - {{ print "/etc/koff-secrets/" . | quote }}
    {{- end }}
{{- else -}}
httpGet: {path: {{ .path }}, port: http{{ if .values.webConfig.tls }}, scheme: HTTPS{{ end }}}
{{- end }}
{{ toYaml (merge dict (index (.values.probes | default dict) .kind | default dict) (dict "timeoutSeconds" 5)) }}
{{- end }}

{{- define "koff.pod" -}}
metadata:
  labels: {{ include "koff.withLabels" (list .Values.podLabels .) | nindent 4 }}
  annotations:
    {{- /* A pod reads its configuration at the start: another configuration makes another pod. */}}
    {{- $checksum := dict "checksum/config" (include "koff.config" . | sha256sum) }}
    {{- toYaml (merge dict (.Values.podAnnotations | default dict) $checksum) | nindent 4 }}
spec:
  serviceAccountName: {{ include "koff.serviceAccount" . }}
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{ include "koff.podSecurity" . | nindent 4 }}
  {{- range $key := list "hostAliases" "initContainers" }}
  {{- with index $.Values $key }}
  {{ $key }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  containers:
    - name: koff
      image: {{ include "koff.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - monitor
        - --config
        - /etc/koff/koff.yaml
        {{- if gt (int .Values.shards) 1 }}
        - --shard
        - $(POD_INDEX)/{{ int .Values.shards }}
        {{- end }}
        {{- if include "koff.isPair" . }}
        - --standby-of
        {{- $scheme := ternary "https" "http" .Values.webConfig.tls }}
        - {{ printf "%s://%s-0.%s:9850" $scheme (include "koff.name" .) (include "koff.podsService" .) }}
        {{- end }}
        {{- if .Values.webConfig.key }}
        - --web.config.file
        - {{ print "/etc/koff-secrets/" .Values.webConfig.key | quote }}
        {{- end }}
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- if or .Values.env (gt (int .Values.shards) 1) }}
      env:
        {{- if gt (int .Values.shards) 1 }}
        - name: POD_INDEX
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
        {{- end }}
        {{- with .Values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- end }}
      {{- with .Values.envFrom }}
      envFrom: {{ toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: http, containerPort: 9850}
      startupProbe:
        {{- include "koff.probe" (dict "kind" "startup" "path" "/healthz" "values" .Values) | nindent 8 }}
      livenessProbe:
        {{- include "koff.probe" (dict "kind" "liveness" "path" "/healthz" "values" .Values) | nindent 8 }}
      readinessProbe:
        {{- include "koff.probe" (dict "kind" "readiness" "path" "/readyz" "values" .Values) | nindent 8 }}
      resources: {{ toYaml .Values.resources | nindent 8 }}
      securityContext: {{ include "koff.security" . | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/koff, readOnly: true}
        {{- if .Values.existingSecret }}
        - {name: secrets, mountPath: /etc/koff-secrets, readOnly: true}
        {{- end }}
        {{- if .Values.state.enabled }}
        - {name: state, mountPath: /var/lib/koff}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
    {{- with .Values.extraContainers }}{{ toYaml . | nindent 4 }}{{ end }}
  volumes:
    - {name: config, configMap: {name: {{ include "koff.name" . }}}}
    {{- if .Values.existingSecret }}
    - {name: secrets, secret: {secretName: {{ .Values.existingSecret | quote }}}}
    {{- end }}
    {{- with .Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $.Values $key }}
  {{ $key }}: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
{{- end }}
