{{- define "podstuck.selector" -}}
app.kubernetes.io/name: podstuck-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "podstuck.labels" -}}
{{ include "podstuck.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* What Kubernetes would take, and what cannot work. */}}
{{- define "podstuck.contradictions" -}}
{{- if and .Values.alerts.enabled (not .Values.alerts.runbooks) }}
{{- fail "alerts.enabled needs alerts.runbooks, the address of the pages of docs/causes" }}
{{- end }}
{{- if and .Values.admissionPolicy.enabled (not .Values.events.enabled) }}
{{- fail "admissionPolicy.enabled limits the agent's Events, and events.enabled is false" }}
{{- end }}
{{- if and .Values.admissionPolicy.enabled (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail "admissionPolicy.enabled needs Kubernetes 1.30, whose tokens name the node" }}
{{- end }}
{{- range .Values.watch.extraArgs }}
{{- if regexMatch "^--(output|export|pin|host-root|api)(=|$)" . }}
{{- fail (printf "watch.extraArgs: %s is set by the chart or by the agent" .) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The AppArmor profile as an annotation before 1.30 names it. */}}
{{- define "podstuck.appArmor" -}}
{{- $names := dict "RuntimeDefault" "runtime/default" "Localhost" (printf "localhost/%s" (default "" .Values.appArmorProfile.localhostProfile)) }}
{{- get $names (default "" .Values.appArmorProfile.type) | default "unconfined" }}
{{- end }}
